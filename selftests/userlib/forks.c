// SPDX-License-Identifier: GPL-2.0
/* L10: a child owns no object and is not the creator of any loop, however the child was created. */
#include "objects_test.h"

static pid_t raw_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* raw_clone() runs no pthread_atfork() handlers, like _Fork(). */
static pid_t (* const makers[])(void) = { fork, raw_clone };

/* The parent's objects, one for each object that only its owner can give. */
struct held {
	char objects[ARRAY_SIZE(objects)][OBJECT_SIZE];
	uint32_t word;
};

/* Whether the parent holds the object. Readers have no owner. */
static bool is_held(const struct object *object)
{
	return has_owner(object) && !object->way->has_gate && object->way != &condition_way;
}

/* Makes calls that must not succeed in a child. Returns the number of wrong results. */
static int check_child(struct held *held, memwait_loop_t *loop, struct counted_op *counted,
		       uint64_t parent)
{
	uint64_t id = parent;
	const struct object *object;
	int wrong = 0;

	for_each_object(object, is_held(object)) {
		wrong += object->way->try(held->objects[object - objects]) != EBUSY;
		wrong += object->way->give(held->objects[object - objects]) != EPERM;
	}
	wrong += memwait_owner(&id) || id == parent;
	wrong += memwait_loop_dispatch(loop, MEMWAIT_ALL) != -EPERM;
	wrong += memwait_loop_run(loop, NULL, 0) != -EPERM;
	wrong += memwait_loop_stop(loop) != -EPERM;
	wrong += memwait_op_cancel(&counted->op) != -EPERM;
	wrong += memwait_loop_close(loop) != 0;
	/* The child can create loops of its own. */
	if (memwait_loop_new(&loop, 0))
		return wrong + 1;
	wrong += memwait_loop_dispatch(loop, MEMWAIT_ALL) != 0;
	wrong += memwait_loop_close(loop) != 0;
	return wrong;
}

USERLIB_TEST(L10_a_child_is_not_its_parent)
{
	struct held *held = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	const struct object *object;
	size_t maker, second_maker;
	uint64_t id;
	pid_t child, grandchild;

	ASSERT_EQ(0, memwait_owner(&id));
	for_each_object(object, is_held(object))
		ASSERT_EQ(0, object->way->make(held->objects[object - objects], object->kind));
	ASSERT_EQ(MEMWAIT_PENDING, memwait_wait32_async(&held->word, 0, NULL, 0, &counted.op));
	ASSERT_EQ(1, memwait_notify(&held->word, 1, 0));
	for (maker = 0; maker < ARRAY_SIZE(makers); maker++) {
		child = makers[maker]();
		ASSERT_LE(0, child);
		if (!child)
			_exit(check_child(held, self->loop, &counted, id));
		EXPECT_EQ(0, child_status(child));

		/* Create children of a child that has called no function of the library. */
		for (second_maker = 0; second_maker < ARRAY_SIZE(makers); second_maker++) {
			child = makers[maker]();
			ASSERT_LE(0, child);
			if (!child) {
				grandchild = makers[second_maker]();
				if (!grandchild)
					_exit(check_child(held, self->loop, &counted, id));
				_exit(child_status(grandchild) ||
				      check_child(held, self->loop, &counted, id));
			}
			EXPECT_EQ(0, child_status(child));
		}
	}
	EXPECT_EQ(1, memwait_loop_dispatch(self->loop, MEMWAIT_ALL));
	EXPECT_EQ(1, counted.calls);
	for_each_object(object, is_held(object)) {
		EXPECT_EQ(0, object->way->give(held->objects[object - objects]));
		EXPECT_EQ(0, object->way->destroy(held->objects[object - objects]));
	}
}

struct helped {
	char memory[OBJECT_SIZE];
	int ready;
	pid_t helper;
};

/*
 * Runs in a process, which waits in a loop. Its child continues to exist with copies of its
 * descriptors.
 */
static void wait_with_helper(struct helped *helped, const struct way *way, pid_t (*make)(void))
{
	struct counted_op counted = { 0 }, word = { 0 };
	static uint32_t never;
	memwait_loop_t *loop;
	pid_t helper;

	if (memwait_loop_new(&loop, 0))
		return;
	memwait_op_init(&counted.op, loop, count_call, &counted);
	memwait_op_init(&word.op, loop, count_call, &word);
	if (way->wait_async(helped->memory, &counted.op) != EINPROGRESS ||
	    memwait_wait32_async(&never, 0, NULL, 0, &word.op) != MEMWAIT_PENDING)
		return;
	helper = make();
	if (helper) {
		helped->helper = helper;
		__atomic_store_n(&helped->ready, 1, __ATOMIC_RELEASE);
	}
	stay();
}

USERLIB_TEST(L10_a_loop_ends_with_its_process_although_a_child_has_copies)
{
	struct helped *helped = self->shared;
	const struct object *object;
	struct visitor visitor;
	size_t i;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(makers) * ARRAY_SIZE(objects); i++) {
		object = &objects[i / ARRAY_SIZE(makers)];
		if (is_private(object) || first_excludes(object) || object->way->meets)
			continue;
		helped->ready = 0;
		ASSERT_EQ(0, object->way->make(helped->memory, object->kind));
		pid = fork_child();
		if (!pid) {
			wait_with_helper(helped, object->way, makers[i % ARRAY_SIZE(makers)]);
			_exit(1);
		}
		ASSERT_LT(0, pid);
		sleep_until(__atomic_load_n(&helped->ready, __ATOMIC_ACQUIRE));
		visitor_start(&visitor, object->way, helped->memory);
		runner_await_asleep(&visitor.runner);
		ASSERT_EQ(128 + SIGKILL, kill_child(pid));

		/* The dead process was first in the queue: the object passes to a living waiter. */
		EXPECT_EQ(0, object->way->give(helped->memory));
		EXPECT_EQ(0, visitor_join(&visitor)) {
			TH_LOG("%s", object->name);
		}
		if (!object->way->counts_killed) {
			EXPECT_EQ(object->way->busy_if_killed ? EBUSY : 0,
				  object->way->destroy(helped->memory));
		}
		/* The child also has copies of this loop's descriptors. */
		kill(helped->helper, SIGKILL);
		sleep_until(!strchr("RSDt", thread_state(helped->helper) ?: 'X'));
	}
}

TEST_HARNESS_MAIN
