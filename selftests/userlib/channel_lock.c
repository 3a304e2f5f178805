// SPDX-License-Identifier: GPL-2.0
/*
 * A thread that holds a lock of a channel is stalled. Operations and calls that only try do not
 * wait for that thread, and loops continue. After the stalled thread has continued, no other thread
 * depends on these operations and loops. The stalled thread, or a waiter that was woken, may also
 * be killed.
 */
#include "channel_test.h"
#include "ioctl_test.h"

/*
 * Set in a thread that is stalled: before its next notify, which may then fail, or after its next
 * wait.
 */
static __thread struct stalled *stalled;

struct stalled {
	memwait_channel_t *channel;
	uint64_t item;
	bool receives, after_wait;
	int is_stalled, may_continue, error;
};

static void stall(struct stalled *here)
{
	stalled = NULL;
	__atomic_store_n(&here->is_stalled, 1, __ATOMIC_RELEASE);
	spin_until(__atomic_load_n(&here->may_continue, __ATOMIC_ACQUIRE));
}

static int intercept(int fd, unsigned long request, void *argument)
{
	struct stalled *here = stalled;
	int ret;

	if (here && !here->after_wait && request == MEMWAIT_IOC_CHANGE_NOTIFY) {
		stall(here);
		if (here->error) {
			errno = here->error;
			return -1;
		}
	}
	ret = ioctl_of_kernel(fd, request, argument);
	if (here && here->after_wait && request == MEMWAIT_IOC_WAIT)
		stall(here);
	return ret;
}

static int transfer(memwait_channel_t *channel, bool receives, uint64_t *item)
{
	return receives ? memwait_channel_recv(channel, item, sizeof(*item)) :
			  memwait_channel_send(channel, item, sizeof(*item));
}

static int try_transfer(memwait_channel_t *channel, bool receives, uint64_t *item)
{
	return receives ? memwait_channel_tryrecv(channel, item, sizeof(*item)) :
			  memwait_channel_trysend(channel, item, sizeof(*item));
}

static int transfer_async(memwait_channel_t *channel, bool receives, uint64_t *item,
			  memwait_op_t *op)
{
	return receives ? memwait_channel_recv_async(channel, item, sizeof(*item), op) :
			  memwait_channel_send_async(channel, item, sizeof(*item), op);
}

static int transfer_and_stall(void *arg)
{
	stalled = arg;
	return transfer(stalled->channel, stalled->receives, &stalled->item);
}

static void await_stalled(struct stalled *peer)
{
	spin_until(__atomic_load_n(&peer->is_stalled, __ATOMIC_ACQUIRE));
}

static void let_continue(struct stalled *peer)
{
	__atomic_store_n(&peer->may_continue, 1, __ATOMIC_RELEASE);
}

/* A thread that makes a try call, begins an operation, and begins and cancels another operation. */
struct trying {
	memwait_channel_t *channel;
	bool receives;
	struct counted_op op, cancelled;
	uint64_t item[3];
	int tried, begun, begun_second, cancel;
};

static int try_all(void *arg)
{
	struct trying *trying = arg;

	trying->tried = try_transfer(trying->channel, trying->receives, &trying->item[0]);
	trying->begun_second = transfer_async(trying->channel, trying->receives, &trying->item[1],
					      &trying->cancelled.op);
	trying->begun = transfer_async(trying->channel, trying->receives, &trying->item[2],
				       &trying->op.op);
	trying->cancel = memwait_op_cancel(&trying->cancelled.op);
	return 0;
}

static struct runner *await_done_or_asleep(struct runner *runner)
{
	spin_until(runner_is_done(runner) || thread_state(runner->tid) == 'S');
	return runner;
}

/* A blocking call that is queued behind the operation. */
struct blocking {
	memwait_channel_t *channel;
	bool receives;
	uint64_t item;
};

static int transfer_blocking(void *arg)
{
	struct blocking *blocking = arg;

	return transfer(blocking->channel, blocking->receives, &blocking->item);
}

/* @behind: a waiter of the other side, which the stalled thread has to notify */
static void check_stalled(struct __test_metadata *_metadata, memwait_channel_t *channel,
			  memwait_loop_t *loop, unsigned int flags, bool receives)
{
	struct stalled peer = { .channel = channel, .receives = receives, .item = 1 };
	struct blocking behind = { channel, !receives, 9 }, next = { channel, receives, 4 };
	struct trying trying = { .channel = channel, .receives = receives, .item = { 5, 2, 3 } };
	struct runner peers, behinds, nexts, tries;
	bool blocks;
	int i;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, flags, sizeof(uint64_t), 4));
	for (i = 0; receives && i < 4; i++)
		ASSERT_EQ(0, memwait_channel_send(channel, &peer.item, sizeof(peer.item)));
	memwait_op_init(&trying.op.op, loop, count_call, &trying.op);
	memwait_op_init(&trying.cancelled.op, loop, count_call, &trying.cancelled);
	runner_start(&behinds, transfer_blocking, &behind);
	runner_await_asleep(&behinds);
	runner_start(&peers, transfer_and_stall, &peer);
	await_stalled(&peer);

	runner_start(&tries, try_all, &trying);
	blocks = !runner_is_done(await_done_or_asleep(&tries));
	EXPECT_EQ(false, blocks);
	runner_start(&nexts, transfer_blocking, &next);
	runner_await_asleep(&nexts);
	let_continue(&peer);
	EXPECT_EQ(0, runner_join(&peers));
	EXPECT_EQ(0, runner_join(&tries));
	/*
	 * The blocking call came after the operation, but does not wait for the operation's loop,
	 * which is not running.
	 */
	EXPECT_EQ(0, runner_join(&nexts));
	if (!blocks) {
		EXPECT_EQ(EBUSY, trying.tried);
		EXPECT_EQ(EINPROGRESS, trying.begun);
		EXPECT_EQ(EINPROGRESS, trying.begun_second);
		EXPECT_EQ(0, trying.cancel);
		ASSERT_EQ(0, dispatch_until(loop, &trying.op.calls, 1));
		EXPECT_EQ(0, trying.op.result);
		EXPECT_EQ(0, trying.cancelled.calls);
	}
	EXPECT_EQ(0, runner_join(&behinds));
	/* This side has transferred three items, and the other side has transferred one. */
	if (!blocks)
		EXPECT_EQ(2, memwait_channel_length(channel));
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

USERLIB_TEST(R28_no_other_thread_waits_for_a_stalled_peer)
{
	unsigned int flags;
	int receives;

	for (receives = 0; receives < 2; receives++) {
		for (flags = 0; flags <= MEMWAIT_PRIVATE; flags += MEMWAIT_PRIVATE) {
			TH_LOG("flags 0x%x, %s", flags, receives ? "receives" : "sends");
			check_stalled(_metadata, self->shared, self->loop, flags, receives);
		}
	}
}

/* A sender that has not noticed the close is stalled, before or after it has sent its item. */
USERLIB_TEST(R28_a_receiver_of_a_closed_channel_does_not_block)
{
	memwait_channel_t *channel = self->shared;
	int way;

	for (way = 0; way < 4; way++) {
		unsigned int flags = way / 2 ? MEMWAIT_PRIVATE : 0;
		struct stalled peer = { .channel = channel, .item = 7 };
		struct counted_op counted = { 0 };
		struct runner peers, dispatcher;
		uint64_t item = 0, tried;

		peer.error = way % 2 ? EMFILE : 0;
		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, flags, sizeof(item), 3));
		memwait_op_init(&counted.op, self->loop, count_call, &counted);
		ASSERT_EQ(EINPROGRESS, memwait_channel_recv_async(channel, &item, sizeof(item),
								  &counted.op));
		runner_start(&peers, transfer_and_stall, &peer);
		await_stalled(&peer);
		ASSERT_EQ(0, memwait_channel_close(channel));
		EXPECT_EQ(0, memwait_channel_close(channel));
		EXPECT_EQ(EBUSY, memwait_channel_tryrecv(channel, &tried, sizeof(tried)));
		ASSERT_EQ(true, mw_readable(memwait_loop_fd(self->loop)));
		runner_start(&dispatcher, dispatch_all, self->loop);
		EXPECT_EQ(true, runner_is_done(await_done_or_asleep(&dispatcher)));
		EXPECT_EQ(0, counted.calls);
		let_continue(&peer);
		EXPECT_EQ(peer.error, runner_join(&peers));
		runner_join(&dispatcher);
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(peer.error ? EPIPE : 0, counted.result);
		EXPECT_EQ(peer.error ? 0 : 7, item);
		EXPECT_EQ(0, memwait_channel_destroy(channel));
	}
}

/*
 * Begins to send the item to the channel of a receiver, behind a child that is stalled with the
 * senders' lock. Returns the child.
 */
static pid_t begin_behind_child(struct __test_metadata *_metadata, struct runner *receiver,
				struct blocking *receiving, uint64_t *item, memwait_op_t *op)
{
	memwait_channel_t *channel = receiving->channel;
	struct stalled *peer = (void *)((char *)channel + 2048);
	pid_t child;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(*item), 3));
	*peer = (struct stalled){ .channel = channel, .item = 7 };
	runner_start(receiver, transfer_blocking, receiving);
	runner_await_asleep(receiver);
	child = run_in_child(transfer_and_stall(peer));
	await_stalled(peer);
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, item, sizeof(*item), op));
	return child;
}

USERLIB_TEST(L6_an_operation_gets_the_lock_of_a_killed_peer)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct blocking behind = { channel, true, 0 };
	struct runner behinds;
	uint64_t item = 6;
	pid_t child;

	child = begin_behind_child(_metadata, &behinds, &behind, &item, &counted.op);
	ASSERT_EQ(128 + SIGKILL, kill_child(child));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(0, counted.result);
	EXPECT_EQ(0, runner_join(&behinds));
	EXPECT_EQ(6, behind.item);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/* The notification of the death passes from the operation to the next waiter for the lock. */
USERLIB_TEST(L6_an_operation_cancelled_at_the_lock_of_a_killed_peer)
{
	memwait_channel_t *channel = self->shared;
	struct counted_op counted = counted_by(&counted, self->loop);
	struct blocking behind = { channel, true, 0 }, next = { channel, false, 4 };
	struct runner behinds, nexts;
	uint64_t item = 6;
	pid_t child;

	child = begin_behind_child(_metadata, &behinds, &behind, &item, &counted.op);
	runner_start(&nexts, transfer_blocking, &next);
	runner_await_asleep(&nexts);
	ASSERT_EQ(128 + SIGKILL, kill_child(child));
	sleep_until(mw_readable(memwait_loop_fd(self->loop)));
	ASSERT_EQ(0, memwait_op_cancel(&counted.op));
	EXPECT_EQ(0, runner_join(&nexts));
	EXPECT_EQ(0, runner_join(&behinds));
	EXPECT_EQ(4, behind.item);
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

/*
 * Two transfers wake two waiters, of which the kernel watches only the second. The first dies
 * before it transfers, so the second leaves something for the third. The channel is not destroyed,
 * because the killed waiter still counts.
 */
USERLIB_TEST(L7_a_waiter_wakes_the_next_for_what_a_killed_waiter_leaves)
{
	struct stalled *killed = (void *)((char *)self->shared + 2048);
	memwait_channel_t *channel = self->shared;
	uint64_t item = 1;
	int receives, i;

	for (receives = 0; receives < 2; receives++) {
		void *word = (char *)channel + (receives ? RECEIVERS_WORD : SENDERS_WORD);
		struct blocking waits[2] = {
			{ channel, receives, 2 },
			{ channel, receives, 3 },
		};
		struct runner waiters[2];
		pid_t child;

		ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 2));
		for (i = 0; !receives && i < 2; i++)
			ASSERT_EQ(0, transfer(channel, false, &item));
		*killed = (struct stalled){
			.channel = channel,
			.receives = receives,
			.after_wait = true,
		};
		child = run_in_child(transfer_and_stall(killed));
		await_waiters(self->fd, word, U32_SIZE, 1);
		for (i = 0; i < 2; i++) {
			runner_start(&waiters[i], transfer_blocking, &waits[i]);
			await_waiters(self->fd, word, U32_SIZE, 2 + i);
		}
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, transfer(channel, !receives, &item));
		await_stalled(killed);
		ASSERT_EQ(128 + SIGKILL, kill_child(child));
		for (i = 0; i < 2; i++)
			EXPECT_EQ(0, runner_join(&waiters[i]));
	}
}

/*
 * A killed receiver still counts as a waiter and is notified. Because a killed receiver never
 * leaves, the channel is not destroyed here.
 */
USERLIB_TEST(R28_a_channel_is_busy_while_an_operation_waits_for_its_lock)
{
	memwait_channel_t *channel = self->shared;
	struct stalled peer = { .channel = channel, .item = 7 };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner peers;
	uint64_t item = 6;
	pid_t child;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 3));
	child = run_in_child(transfer(channel, true, &item));
	await_waiters(self->fd, (char *)channel + RECEIVERS_WORD, U32_SIZE, 1);
	ASSERT_EQ(128 + SIGKILL, kill_child(child));
	runner_start(&peers, transfer_and_stall, &peer);
	await_stalled(&peer);
	ASSERT_EQ(EINPROGRESS, memwait_channel_send_async(channel, &item, sizeof(item),
							  &counted.op));
	EXPECT_EQ(EBUSY, memwait_channel_destroy(channel));
	let_continue(&peer);
	EXPECT_EQ(0, runner_join(&peers));
	ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
	EXPECT_EQ(2, memwait_channel_length(channel));
}

USERLIB_TEST(L3_an_operation_that_waits_for_the_lock_has_a_deadline)
{
	memwait_channel_t *channel = self->shared;
	struct stalled peer = { .channel = channel, .item = 1 };
	struct blocking behind = { channel, true, 0 };
	struct counted_op counted = counted_by(&counted, self->loop);
	struct runner peers, behinds;
	struct timespec time;
	uint64_t item = 2;

	ASSERT_EQ(0, memwait_channel_init(channel, SHARED_SIZE, 0, sizeof(item), 3));
	runner_start(&behinds, transfer_blocking, &behind);
	runner_await_asleep(&behinds);
	runner_start(&peers, transfer_and_stall, &peer);
	await_stalled(&peer);
	time = in_time(CLOCK_MONOTONIC, -5);
	EXPECT_EQ(ETIMEDOUT, memwait_channel_clocksend_async(channel, &item, sizeof(item),
							     CLOCK_MONOTONIC, &time, &counted.op));
	time = in_time(CLOCK_MONOTONIC, 200);
	if (memwait_channel_clocksend_async(channel, &item, sizeof(item), CLOCK_MONOTONIC, &time,
					    &counted.op) ==
	    EINPROGRESS) {
		ASSERT_EQ(0, dispatch_until(self->loop, &counted.calls, 1));
		EXPECT_EQ(ETIMEDOUT, counted.result);
	}
	let_continue(&peer);
	EXPECT_EQ(0, runner_join(&peers));
	EXPECT_EQ(0, runner_join(&behinds));
	EXPECT_EQ(0, memwait_channel_length(channel));
	EXPECT_EQ(0, memwait_channel_destroy(channel));
}

TEST_HARNESS_MAIN
