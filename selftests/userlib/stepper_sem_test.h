/* SPDX-License-Identifier: GPL-2.0 */
/* Semaphores. */
#ifndef STEPPER_SEM_TEST_H
#define STEPPER_SEM_TEST_H

#include "stepper_mutex_test.h"

STEPPER_CALL(make_sem, memwait_sem_init(&shared->objects.sem, 0, 0))
STEPPER_CALL(make_fair_sem, memwait_sem_init(&shared->objects.sem, MEMWAIT_SEM_FAIR, 0))
STEPPER_CALL(make_posted_sem, memwait_sem_init(&shared->objects.sem, 0, 1))

OPERATION(wait_for_sem, memwait_sem_wait(&objects->sem))

static int wait_too_late(struct objects *objects)
{
	struct timespec past = { 0 };

	return memwait_sem_clockwait(&objects->sem, CLOCK_MONOTONIC, &past) != ETIMEDOUT;
}

OPERATION(post_sem, memwait_sem_post(&objects->sem))

static int take(struct objects *objects, int me)
{
	struct timespec deadline = last_moment();

	return memwait_sem_clockwait(&objects->sem, CLOCK_MONOTONIC, &deadline);
}

static int sem_value(struct objects *objects)
{
	int value;

	return memwait_sem_getvalue(&objects->sem, &value) ? -1 : value;
}

static bool sem_is_empty(void)
{
	return !sem_value(&shared->copy);
}

/* Posts once for the victim and once for the first waiter behind it. */
static int release_sem(struct stepper *stepper)
{
	int i;

	for (i = 0; i < stepper->scenario->number; i++) {
		if (memwait_sem_post(&shared->objects.sem))
			return -1;
	}
	return 0;
}

/*
 * Each post is available or was consumed, except the post that the victim consumed, and no process
 * sleeps while the value is positive. @number: the number of posts without the victim's post.
 */
static const char *check_sem(struct stepper *stepper)
{
	int least, most, there, busy, posts = stepper->scenario->number;

	start_followers(stepper);
	if (release_at_last(stepper))
		return "it could not be posted";
	if (stepper->releases)
		posts *= stepper->releases;
	settle(stepper, sem_is_empty);
	there = sem_value(&shared->objects) + helpers_done(take, 0);
	if (stepper->scenario->operation == post_sem) {
		least = ended() ? posts + 1 : posts;
		most = posts + 1;
	} else if (stepper->scenario->operation == wait_too_late) {
		least = posts;
		most = posts;
	} else {
		least = posts - 1;
		most = ended() ? posts - 1 : posts;
	}
	if (ended() && shared->objects.result)
		return say(stepper, "result %d", shared->objects.result);
	if (there < least || there > most)
		return say(stepper, "the value is %d, not %d to %d", there, least, most);
	/* Each process that is still asleep needs one post. A new helper also needs one. */
	for (busy = helpers_busy(); busy; busy--) {
		if (helpers_busy() != busy)
			return say(stepper, "a post did not wake exactly one waiter");
		if (memwait_sem_post(&shared->objects.sem))
			return "it could not be posted";
		settle(stepper, sem_is_empty);
	}
	if (all_well(stepper))
		return all_well(stepper);
	helper_start(stepper, HELPERS - 1, take);
	if (!sem_value(&shared->objects) && memwait_sem_post(&shared->objects.sem))
		return "it could not be posted";
	settle(stepper, NULL);
	return all_well(stepper);
}

#define SEM_TEST(id, text, ...) STEPPER_TEST(sem_##id, "semaphore " text,			\
					     .check = check_sem, __VA_ARGS__)

SEM_TEST(wait_posted, "wait, posted", .prepare = make_posted_sem, .operation = wait_for_sem,
	 .number = 1)
SEM_TEST(wait, "wait", .prepare = make_sem, .operation = wait_for_sem, .behind = { take, take },
	 .release = release_sem, .number = 1)
SEM_TEST(wait_two, "wait, posted twice", .prepare = make_sem, .operation = wait_for_sem,
	 .behind = { take, take, take }, .release = release_sem, .number = 2)
SEM_TEST(wait_late, "wait, until its deadline", .prepare = make_sem, .operation = wait_too_late,
	 .before = { take }, .release = release_sem, .number = 1)
SEM_TEST(post, "post", .prepare = make_sem, .operation = post_sem)
SEM_TEST(post_waiters, "post, some wait", .prepare = make_sem, .before = { take, take },
	 .operation = post_sem)
SEM_TEST(wait_async, "wait_async", .prepare = make_sem, .approach = make_loop,
	 .operation = take_by_loop, .behind = { take, take }, .release = release_sem, .number = 1)
SEM_TEST(fair_wait, "FAIR wait", .prepare = make_fair_sem, .operation = wait_for_sem,
	 .behind = { take, take }, .release = release_sem, .number = 1)
SEM_TEST(fair_wait_late, "FAIR wait, until its deadline", .prepare = make_fair_sem,
	 .operation = wait_too_late, .before = { take }, .release = release_sem, .number = 1)
SEM_TEST(fair_post_waiters, "FAIR post, some wait", .prepare = make_fair_sem,
	 .before = { take, take }, .operation = post_sem)
SEM_TEST(fair_wait_async, "FAIR wait_async", .prepare = make_fair_sem, .approach = make_loop,
	 .operation = take_by_loop, .behind = { take, take }, .release = release_sem, .number = 1)

#endif /* STEPPER_SEM_TEST_H */
