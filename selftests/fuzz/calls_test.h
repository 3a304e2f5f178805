/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calls of a program. Each result is compared with the errors that the kind of the call allows.
 */
#ifndef CALLS_TEST_H
#define CALLS_TEST_H

#include "arguments_test.h"

static void do_info(struct thread *t)
{
	static const struct memwait_info nothing;
	uint64_t at = issue(t, MEMWAIT_IOC_INFO, &nothing, sizeof(nothing), sizeof(nothing));
	size_t size = size_of(t->call->arg[1], sizeof(nothing)), i;
	const struct memwait_info *info = (void *)(uintptr_t)at;

	if (!passed(t, at)) {
		may_change(t, at, size);
		return;
	}
	CHECK(t, t->ret != -EFAULT);
	if (t->ret)
		return;
	may_change(t, at, size);
	CHECK(t, info->max_group == MEMWAIT_GROUP_MAX);
	CHECK(t, !info->reserved);
	for (i = sizeof(*info); i < size; i++)
		CHECK(t, !((uint8_t *)info)[i]);
}

static struct memwait_wait wait_arg(const uint8_t *arg)
{
	uint32_t flags = PICK(flag_sets, arg[3]);

	return (struct memwait_wait) {
		.addr = word_at(arg[0]),
		.expected = value_of(arg[1]),
		.deadline = deadline_of(arg[2], flags),
		.flags = flags,
	};
}

static struct memwait_notify notify_arg(const uint8_t *arg)
{
	return (struct memwait_notify) {
		.addr = word_at(arg[0]),
		.count = PICK(counts, arg[1]),
		.flags = PICK(flag_sets, arg[2]),
	};
}

static void do_wait(struct thread *t)
{
	struct memwait_wait arg = wait_arg(t->call->arg + 3);
	uint64_t at = issue(t, MEMWAIT_IOC_WAIT, &arg, sizeof(arg), 0);
	const struct memwait_wait *was = passed(t, at);

	if (was && t->ret == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->deadline, was->flags);
}

static void do_notify(struct thread *t)
{
	struct memwait_notify arg = notify_arg(t->call->arg + 3);
	uint64_t at = issue(t, MEMWAIT_IOC_NOTIFY, &arg, sizeof(arg), 0);
	const struct memwait_notify *was = passed(t, at);

	CHECK(t, t->ret <= 0 || !was || (uint64_t)t->ret <= was->count);
}

static void do_waiters(struct thread *t)
{
	struct memwait_notify arg = notify_arg(t->call->arg + 3);

	/* The value is usually valid. */
	if (t->call->arg[4] < 224)
		arg.count = 0;
	issue(t, MEMWAIT_IOC_WAITERS, &arg, sizeof(arg), 0);
}

static void do_cancel(struct thread *t)
{
	struct memwait_cancel arg = { .id = id_of(t->call->arg[3]) };
	uint64_t at = issue(t, MEMWAIT_IOC_CANCEL, &arg, sizeof(arg), 0);

	CHECK(t, t->ret != -EFAULT || !passed(t, at));
}

/* Builds a group of adjacent words, or of one word several times. */
static void make_group(struct memwait_wait *waits, uint32_t nr, uint8_t word, uint8_t value,
		       uint8_t flags)
{
	uint32_t step = flags & 0x80 ? 0 : 8, i;

	for (i = 0; i < nr; i++) {
		waits[i] = (struct memwait_wait) {
			.addr = word_at(word) + i * step,
			.expected = value_of(value),
			.flags = PICK(flag_sets, flags) & ~MEMWAIT_GROUP,
		};
		if (i % 3 == 2)
			waits[i].addr = word_at(word ^ 1);
	}
}

#define ENTRIES	4

/*
 * If the call stopped at an entry, the result of that entry is the reason, unless the result cannot
 * be written.
 */
static void check_entry(struct thread *t, const struct memwait_async *entry,
			const struct memwait_async *was, bool failed)
{
	bool grouped = was->wait.flags & MEMWAIT_GROUP;

	may_change(t, (uintptr_t)&entry->id, sizeof(entry->id));
	may_change(t, (uintptr_t)&entry->result, sizeof(entry->result));
	if (grouped)
		may_change(t, (uintptr_t)&entry->any.index, sizeof(entry->any.index));
	if (failed) {
		CHECK(t, entry->id == 0);
		CHECK(t, entry->result == -EINVAL || entry->result == -EFAULT ||
		      entry->result == -EOPNOTSUPP || entry->result == -ENOSPC ||
		      entry->result == -ENOMEM || entry->result == -EPERM);
		CHECK(t, t->ret > 0 || t->ret == entry->result);
		return;
	}
	CHECK(t, entry->result >= MEMWAIT_NOT_EQUAL && entry->result <= MEMWAIT_OWNER_DIED);
	CHECK(t, entry->result != MEMWAIT_OWNER_DIED || (was->wait.flags & MEMWAIT_OWNED));
	CHECK(t, !entry->id == (entry->result != MEMWAIT_PENDING));
	if (entry->id)
		keep_id(entry->id);
	if (entry->result == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->wait.deadline, was->wait.flags);
	if (grouped)
		CHECK(t, entry->result == MEMWAIT_NOT_EQUAL ?
			 entry->any.index < was->any.count : entry->any.index == was->any.index);
}

static void do_wait_async(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_async entries[ENTRIES] = { 0 }, before[ENTRIES];
	struct memwait_wait_async arg = {
		.count = PICK(nrs, c->arg[3]),
		.entry_size = sizeof(entries[0]),
	};
	struct memwait_wait group[MEMWAIT_GROUP_MAX];
	const struct memwait_wait_async *was;
	const struct memwait_async *entry;
	uint32_t i, nr;

	for (i = 0; i < ENTRIES; i++) {
		const uint8_t *a = c->arg + 4 + i % 2 * 4;

		entries[i] = (struct memwait_async) {
			.wait = wait_arg(a),
			.user_data = USER_DATA | i,
		};
		if (!(entries[i].wait.flags & MEMWAIT_GROUP))
			continue;
		nr = PICK(nrs, a[1]);
		make_group(group, nr > MEMWAIT_GROUP_MAX ? MEMWAIT_GROUP_MAX : nr, a[0], a[1] / 16,
			   a[3] & 0x80);
		entries[i].any = (struct memwait_wait_any) {
			.waits = place(t, i == 3 ? (uint8_t)CUT : (uint8_t)NORMAL, group,
				       sizeof(group), GROUP_AT + i % 2 * PAGE),
			.count = nr,
			.deadline = entries[i].wait.deadline,
			.flags = entries[i].wait.flags,
			.index = a[2],
		};
	}
	/* There are only as many entries as @count says, because the area ends after them. */
	nr = arg.count < ENTRIES ? arg.count : ENTRIES;
	arg.waits = place_array(t, entries, nr * sizeof(entries[0]));
	was = passed(t, issue(t, MEMWAIT_IOC_WAIT_ASYNC, &arg, sizeof(arg), 8));
	if (!in_area(t, arg.waits))
		return;
	/* With another element size, the elements have other contents and other addresses. */
	if (was && was->entry_size != sizeof(entries[0])) {
		may_change(t, arg.waits, AREA);
		return;
	}

	/* The copy is changed while the entries are checked. */
	memcpy(before, t->copy + (arg.waits - (uintptr_t)t->area),
	       sizeof(before) < AREA - (arg.waits - (uintptr_t)t->area) ? sizeof(before) :
	       AREA - (arg.waits - (uintptr_t)t->area));
	entry = (const void *)(uintptr_t)arg.waits;
	nr = t->ret < 0 ? 0 : t->ret;
	for (i = 0; i < nr && i < ENTRIES; i++)
		check_entry(t, &entry[i], &before[i], false);
	if (i < ENTRIES && in_area(t, (uintptr_t)&entry[i + 1] - 1) &&
	    memcmp(&entry[i], &before[i], sizeof(before[i])))
		check_entry(t, &entry[i], &before[i], true);
	/* If the count was large, there may be entries after those that were built. */
	for (i = ENTRIES; i <= nr; i++)
		may_change(t, (uintptr_t)&entry[i].id, 16);
	/* The array did not fit into the area. */
	if (c->arg[2] / PLACES % PLACES == CUT)
		may_change(t, arg.waits, AREA);
}

static void do_wait_any(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_wait waits[MEMWAIT_GROUP_MAX];
	struct memwait_wait_any arg = {
		.count = PICK(nrs, c->arg[3]),
		.deadline = deadline_of(c->arg[6], PICK(flag_sets, c->arg[8])),
		.index = 0x5a5a5a5a,
	}, *now;
	const struct memwait_wait_any *was;
	uint32_t nr = arg.count < MEMWAIT_GROUP_MAX ? arg.count : MEMWAIT_GROUP_MAX;
	uint64_t at;

	arg.flags = c->arg[8] % 8 == 5 ? PICK(flag_sets, c->arg[8] / 8) :
		    PICK(flag_sets, c->arg[8]) & MEMWAIT_CLOCK_REALTIME;
	make_group(waits, nr, c->arg[4], c->arg[5], c->arg[7]);
	arg.waits = place_array(t, waits, nr * sizeof(waits[0]));
	at = issue(t, MEMWAIT_IOC_WAIT_ANY, &arg, sizeof(arg), 0);
	was = passed(t, at);
	now = (void *)(uintptr_t)at;
	if (!was) {
		may_change(t, at + offsetof(struct memwait_wait_any, index), sizeof(now->index));
		return;
	}
	if (t->ret == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->deadline, was->flags);
	if (t->ret == MEMWAIT_OK || t->ret == MEMWAIT_NOT_EQUAL) {
		CHECK(t, now->index < was->count);
		may_change(t, (uintptr_t)&now->index, sizeof(now->index));
	}
}

static void do_requeue(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_requeue arg = {
		.addr = word_at(c->arg[3]),
		.expected = value_of(c->arg[4]),
		.target = word_at(c->arg[5]),
		.count = PICK(counts, c->arg[6]),
		.move = PICK(counts, c->arg[7]),
		.flags = PICK(flag_sets, c->arg[8]),
		.woken = 0x5a5a5a5a,
		.moved = 0x5a5a5a5a,
	};
	uint64_t at = issue(t, MEMWAIT_IOC_REQUEUE, &arg, sizeof(arg), 0);
	const struct memwait_requeue *was = passed(t, at), *now = (void *)(uintptr_t)at;

	if (was && t->ret >= 0) {
		CHECK(t, now->woken <= was->count);
		CHECK(t, now->moved <= was->move);
		CHECK(t, t->ret == MEMWAIT_OK || (!now->woken && !now->moved));
	}
	if (t->ret != -EINVAL && t->ret != -E2BIG)
		may_change(t, at + offsetof(struct memwait_requeue, woken), 8);
}

static void do_notify_wait(struct thread *t)
{
	struct memwait_notify_wait arg = {
		.notify = notify_arg(t->call->arg + 3),
		.wait = wait_arg(t->call->arg + 6),
		.notified = 0x5a5a5a5a,
	};
	uint64_t at = issue(t, MEMWAIT_IOC_NOTIFY_WAIT, &arg, sizeof(arg), 0);
	const struct memwait_notify_wait *now = (void *)(uintptr_t)at, *was = passed(t, at);

	if (!was) {
		may_change(t, at + offsetof(struct memwait_notify_wait, notified), 8);
		return;
	}
	if (t->ret == -EINTR)
		CHECK(t, now->state == MEMWAIT_NOTIFIED);
	else if (t->ret >= 0)
		CHECK(t, !now->state);
	else if (t->ret != -EBADF)	/* no ioctl if closed before a restart */
		CHECK(t, !now->state || now->state == was->state);
	if (t->ret == MEMWAIT_TIMED_OUT)
		check_deadline(t, was->wait.deadline, was->wait.flags);
	if (now->notified != was->notified) {
		CHECK(t, !was->state);
		CHECK(t, now->notified <= was->notify.count);
	}
	may_change(t, (uintptr_t)&now->notified, 8);
}

#define NOTIFIES	24	/* more notifies than one step of the module processes */

static void do_notify_many(struct thread *t)
{
	const struct call *c = t->call;
	struct memwait_notify notifies[NOTIFIES];
	struct memwait_notify_many arg = { .count = PICK(nrs, c->arg[3]) };
	uint32_t woken[NOTIFIES], i, nr;
	const uint32_t *now;

	for (i = 0; i < NOTIFIES; i++)
		notifies[i] = notify_arg(c->arg + 4 + i % 2 * 3);
	memset(woken, 0x5a, sizeof(woken));
	if (arg.count > NOTIFIES && arg.count <= MEMWAIT_GROUP_MAX)
		arg.count = NOTIFIES;
	nr = arg.count < NOTIFIES ? arg.count : NOTIFIES;
	arg.notifies = place_array(t, notifies, nr * sizeof(notifies[0]));
	/* These locations must differ from those of the notifies and of the struct. */
	if (c->arg[10] % PLACES == AT_END || c->arg[10] % PLACES == CUT)
		arg.woken = place(t, NORMAL, woken, nr * sizeof(woken[0]), WOKEN_AT);
	else
		arg.woken = place(t, c->arg[10], woken, nr * sizeof(woken[0]), WOKEN_AT);
	issue(t, MEMWAIT_IOC_NOTIFY_MANY, &arg, sizeof(arg), 16);
	if (!in_area(t, arg.woken) || t->ret <= 0)
		return;
	now = (const void *)(uintptr_t)arg.woken;
	may_change(t, arg.woken, t->ret * sizeof(now[0]));
	for (i = 0; i < NOTIFIES && (long)i < t->ret && in_area(t, arg.notifies) &&
	     c->arg[2] / PLACES % PLACES == NORMAL; i++) {
		const struct memwait_notify *was =
			(const void *)(t->copy + (arg.notifies - (uintptr_t)t->area));

		CHECK(t, now[i] <= was[i].count);
	}
}

static void do_owner(struct thread *t)
{
	static const uint32_t flags[] = {
		0, 0, MEMWAIT_OWNER_CONTEXT, MEMWAIT_OWNER_EXIT,
		MEMWAIT_OWNER_CONTEXT | MEMWAIT_OWNER_BIND, 3, 4, 8,
	};
	struct memwait_owner arg = { .flags = PICK(flags, t->call->arg[3]) };
	uint64_t at = issue(t, MEMWAIT_IOC_OWNER, &arg, sizeof(arg), 8);
	const struct memwait_owner *now = (void *)(uintptr_t)at;

	if (!passed(t, at) || t->ret) {
		CHECK(t, t->ret != -EFAULT || !passed(t, at));
		may_change(t, at, t->ret ? 0 : sizeof(now->id));
		return;
	}
	may_change(t, at, sizeof(now->id));
	CHECK(t, !(now->id & ~MEMWAIT_OWNER_MASK));
	if (now->id)
		__atomic_store_n(&shared->owner, now->id, __ATOMIC_RELAXED);
}

static void do_change_notify(struct thread *t)
{
	struct memwait_change arg = {
		.notify = notify_arg(t->call->arg + 3),
		.operation = t->call->arg[6] % 6 |
			     (t->call->arg[6] & 0x80 ? MEMWAIT_CHANGE_IF_NONE_WOKEN : 0),
		.operand = value_of(t->call->arg[7]),
		.old = 0x5a5a5a5a,
	};
	uint64_t at = issue(t, MEMWAIT_IOC_CHANGE_NOTIFY, &arg, sizeof(arg), 8);
	const struct memwait_change *was = passed(t, at);

	CHECK(t, t->ret <= 0 || !was || (uint64_t)t->ret <= was->notify.count);
	if (t->ret != -EINVAL && t->ret != -E2BIG)
		may_change(t, at + offsetof(struct memwait_change, old), sizeof(arg.old));
}

/* Makes an ioctl with any number, direction and size. */
static void do_raw(struct thread *t)
{
	static const uint8_t bytes[64];
	const struct call *c = t->call;
	uint8_t type = c->arg[4] % 8 ? MEMWAIT_IOC_MAGIC : c->arg[4], nr = c->arg[5] % 16;

	issue(t, _IOC(c->arg[3] % 4, type, nr, 0), bytes, sizeof(bytes), 0);
	/* An existing ioctl may write, and so may an ioctl that every file has. */
	if (type == MEMWAIT_IOC_MAGIC && nr > _IOC_NR(MEMWAIT_IOC_CHANGE_NOTIFY))
		CHECK(t, t->ret == -ENOTTY || t->ret == -EBADF);
	else
		remember(t);
}

static void check_completion(struct thread *t, const struct memwait_completion *done)
{
	/* The user data may have any value, because a bit of it may have been flipped. */
	CHECK(t, done->id);
	CHECK(t, done->result == MEMWAIT_OK || done->result == MEMWAIT_TIMED_OUT ||
	      done->result == MEMWAIT_OWNER_DIED);
	CHECK(t, done->index < (done->result == MEMWAIT_OK ? MEMWAIT_GROUP_MAX : 1));
	CHECK(t, !done->count == (done->result != MEMWAIT_OK));
	CHECK(t, !(done->flags & ~MEMWAIT_MORE) && (!done->flags || done->count));
}

#define RECORDS	40

static void do_read(struct thread *t)
{
	static const uint8_t nothing[RECORDS * sizeof(struct memwait_completion)];
	static const size_t sizes[] = {
		sizeof(struct memwait_completion), 4 * sizeof(struct memwait_completion),
		sizeof(nothing), 100, sizeof(struct memwait_completion) - 1, 0,
	};
	const struct call *c = t->call;
	size_t size = PICK(sizes, c->arg[1]), done;
	uint64_t at = place(t, c->arg[2], nothing, size, ARRAY_AT);
	struct iovec iov[2] = {
		{ (void *)(uintptr_t)at, size / 2 },
		{ (void *)(uintptr_t)(at + size / 2), size - size / 2 },
	};

	remember(t);
	TRY(t, c->arg[3] & 1 ? readv(context(c->arg[0]), iov, 2) :
			       read(context(c->arg[0]), (void *)(uintptr_t)at, size));
	if (t->ret < 0) {
		/* The second half of a record may have crossed the end of the area. */
		if (t->ret == -EFAULT)
			may_change(t, at, size);
		return;
	}
	CHECK(t, t->ret <= (long)size && !(t->ret % sizeof(struct memwait_completion)));
	if (!in_area(t, at) || c->arg[2] % PLACES == CUT) {
		may_change(t, at, size);
		return;
	}
	may_change(t, at, t->ret);
	for (done = 0; (long)done < t->ret; done += sizeof(struct memwait_completion))
		check_completion(t, (void *)(uintptr_t)(at + done));
}

static void do_poll(struct thread *t)
{
	static const short events[] = { POLLIN, POLLIN | POLLRDNORM, POLLOUT, 0, -1 };
	const struct call *c = t->call;
	struct pollfd pfd = { .fd = context(c->arg[0]), .events = PICK(events, c->arg[1]) };

	TRY(t, poll(&pfd, 1, c->arg[2] % 4 == 3 ? 3 : 0));
	/* If the context is bound, it may have ended with a forked process. */
	CHECK(t, t->ret <= 0 || (pfd.revents & POLLNVAL) ||
	      (!t->alone && (pfd.revents & POLLHUP) && (pfd.revents & POLLERR)) ||
	      !(pfd.revents & ~(POLLIN | POLLRDNORM)));
	/* A read that faults consumes nothing. Therefore EAGAIN would be wrong after POLLIN. */
	mprotect(region(NO_ACCESS), region_size(NO_ACCESS), PROT_NONE);
	if (t->alone && t->ret > 0 && (pfd.revents & POLLIN)) {
		t->ret = read(context(c->arg[0]), region(NO_ACCESS),
			      sizeof(struct memwait_completion));
		CHECK(t, t->ret < 0 && (errno == EFAULT || errno == EINTR || errno == EBADF));
		t->ret = 0;
	}
}

static void do_epoll_ctl(struct thread *t)
{
	static const uint32_t events[] = {
		EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLEXCLUSIVE,
	};
	static const int ops[] = { EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL };
	const struct call *c = t->call;
	struct epoll_event event = { .events = PICK(events, c->arg[1]) };

	if (fcntl(EPOLL_FD, F_GETFD) < 0)
		settle(epoll_create1(EPOLL_CLOEXEC), EPOLL_FD);
	TRY(t, epoll_ctl(EPOLL_FD, PICK(ops, c->arg[2]), context(c->arg[0]), &event));
}

static void do_epoll_wait(struct thread *t)
{
	struct epoll_event events[CONTEXTS];

	TRY(t, epoll_wait(EPOLL_FD, events, CONTEXTS, t->call->arg[0] % 4 == 3 ? 3 : 0));
}

static int open_context(int to, int flags)
{
	return settle(open("/dev/memwait", flags | O_CLOEXEC), to);
}

static void do_open(struct thread *t)
{
	static const int flags[] = { O_RDWR | O_NONBLOCK, O_RDWR, O_RDONLY, O_WRONLY | O_NONBLOCK };

	coverage_begin(t);
	t->ret = open_context(context(t->call->arg[0]), PICK(flags, t->call->arg[1]));
	coverage_end(t);
}

static void do_dup(struct thread *t)
{
	TRY(t, dup2(context(t->call->arg[0]), context(t->call->arg[1])));
}

static void do_close(struct thread *t)
{
	TRY(t, close(context(t->call->arg[0])));
}

static void do_fdinfo(struct thread *t)
{
	char path[64], text[512];
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", context(t->call->arg[0]));
	TRY(t, (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 ? -1 : read(fd, text, sizeof(text)));
	if (fd >= 0)
		close(fd);
}

static void do_store(struct thread *t)
{
	uint64_t value = value_of(t->call->arg[1]);

	copy_to(t, word_at(t->call->arg[0]), &value, 1 << t->call->arg[2] % 4);
}

/* A change of a mapping or a file may fail, which does not matter. */
static void do_map(struct thread *t)
{
	static const int protections[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };
	const struct call *c = t->call;
	int i = c->arg[0] % REGIONS, other = c->arg[1] % REGIONS, file = region_file[i];
	size_t size = c->arg[2] & 1 ? PAGE : region_size(i), at = c->arg[2] & 2 ? PAGE : 0;

	switch (c->arg[3] % 8) {
	case 0:
		munmap((uint8_t *)region(i) + at, size);
		break;
	case 1:
		/* A mapping of the size of HUGE_SHARED would reach into the next region. */
		map_region(i, i != HUGE_SHARED && other == HUGE_SHARED ? i : other);
		break;
	case 2:
		mprotect((uint8_t *)region(i) + at, size, PICK(protections, c->arg[1]));
		break;
	case 3:
		madvise(region(i), size, MADV_DONTNEED);
		break;
	case 4:
		mremap(region(i), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, region(other));
		break;
	case 5:
		t->ret = file < 0 ? 0 : ftruncate(file, c->arg[1] & 1 ? region_size(i) : at);
		break;
	case 6:
		if (file >= 0)
			fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, PAGE);
		break;
	default:
		map_region(i, i);
		break;
	}
	t->ret = 0;
}

/* The forked process runs some of the following calls, and ends. */
static void do_fork(struct thread *t)
{
	pid_t pid;

	t->ret = 0;
	if (t->forked)
		return;
	t->alone = false;
	pid = fork();
	if (pid)
		return;
	t->forked = true;
	t->kcov = NULL;
	t->left = 1 + t->call->arg[0] % 4;
}

static void do_signal(struct thread *t)
{
	struct thread *to = &threads[t->call->arg[0] % t->program->threads];

	syscall(SYS_tgkill, getpid(), __atomic_load_n(&to->tid, __ATOMIC_ACQUIRE),
		t->call->arg[1] & 1 ? SIGUSR1 : SIGALRM);
	t->ret = 0;
}

static void do_pause(struct thread *t)
{
	struct timespec ts = { .tv_nsec = t->call->arg[0] % 4 * 300000 };

	if (ts.tv_nsec)
		nanosleep(&ts, NULL);
	else
		sched_yield();
}

/* The meaning of an argument's byte. */
enum type {
	NONE, CONTEXT, SIZE, PLACE, WORD, VALUE, DEADLINE, FLAGS, NR, COUNT, ID, REGION, NUMBER,
};

/*
 * Errors in addition to EBADF. Any call can return EBADF if another thread closes its descriptor.
 */
#define ERRORS	12

struct kind {
	const char *name;
	void (*function)(struct thread *t);
	uint8_t weight;
	long most;		/* the greatest result */
	int errors[ERRORS];
	uint8_t args[ARGS];
};

#define ANY_RESULT	INT32_MAX

static const struct kind kinds[] = {
	{ "info", do_info, 3, 0, { EFAULT, EINVAL }, { CONTEXT, SIZE, PLACE } },
	{ "wait", do_wait, 10, MEMWAIT_OWNER_DIED,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR, ENOMEM, EPERM },
	  { CONTEXT, SIZE, PLACE, WORD, VALUE, DEADLINE, FLAGS } },
	{ "notify", do_notify, 14, ANY_RESULT, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS } },
	{ "wait_async", do_wait_async, 20, ANY_RESULT,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, ENOSPC, ENOMEM, EPERM },
	  { CONTEXT, SIZE, PLACE, NR,
	    WORD, VALUE, DEADLINE, FLAGS, WORD, VALUE, DEADLINE, FLAGS } },
	{ "cancel", do_cancel, 10, 0, { EFAULT, EINVAL, E2BIG, ENOENT, EPERM },
	  { CONTEXT, SIZE, PLACE, ID } },
	{ "wait_any", do_wait_any, 8, MEMWAIT_TIMED_OUT,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR, ENOMEM },
	  { CONTEXT, SIZE, PLACE, NR, WORD, VALUE, DEADLINE, FLAGS, FLAGS } },
	{ "requeue", do_requeue, 10, MEMWAIT_NOT_EQUAL,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, ENOMEM, EXDEV },
	  { CONTEXT, SIZE, PLACE, WORD, VALUE, WORD, COUNT, COUNT, FLAGS } },
	{ "notify_wait", do_notify_wait, 8, MEMWAIT_OWNER_DIED,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR, ENOMEM, EPERM },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS, WORD, VALUE, DEADLINE, FLAGS } },
	{ "waiters", do_waiters, 3, ANY_RESULT, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS } },
	{ "notify_many", do_notify_many, 10, ANY_RESULT, { EFAULT, EINVAL, E2BIG, EOPNOTSUPP },
	  { CONTEXT, SIZE, PLACE, NR, WORD, COUNT, FLAGS, WORD, COUNT, FLAGS, PLACE } },
	{ "owner", do_owner, 8, 0,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, ENOSPC, ENOMEM, EPERM, EBUSY },
	  { CONTEXT, SIZE, PLACE, NUMBER } },
	{ "change_notify", do_change_notify, 8, ANY_RESULT,
	  { EFAULT, EINVAL, E2BIG, EOPNOTSUPP, EINTR },
	  { CONTEXT, SIZE, PLACE, WORD, COUNT, FLAGS, NUMBER, VALUE } },
	{ "raw", do_raw, 2, ANY_RESULT,
	  { EFAULT, EINVAL, E2BIG, ENOTTY, ENOENT, EOPNOTSUPP, EINTR, ENOMEM, ENOSPC, EPERM,
	    EBUSY },
	  { CONTEXT, SIZE, PLACE, NUMBER, NUMBER, NUMBER } },
	{ "read", do_read, 12, ANY_RESULT, { EINVAL, EAGAIN, EINTR, EFAULT, EPERM },
	  { CONTEXT, NUMBER, PLACE, NUMBER } },
	{ "poll", do_poll, 6, 1, { EINTR }, { CONTEXT, NUMBER, NUMBER } },
	{ "epoll_ctl", do_epoll_ctl, 3, 0, { EEXIST, ENOENT, EINVAL },
	  { CONTEXT, NUMBER, NUMBER } },
	{ "epoll_wait", do_epoll_wait, 3, CONTEXTS, { EINTR }, { NUMBER } },
	{ "open", do_open, 4, ANY_RESULT, { EBUSY }, { CONTEXT, NUMBER } },
	{ "dup", do_dup, 3, ANY_RESULT, { EBUSY }, { CONTEXT, CONTEXT } },
	{ "close", do_close, 3, 0, { 0 }, { CONTEXT } },
	{ "fdinfo", do_fdinfo, 1, ANY_RESULT, { ENOENT }, { CONTEXT } },
	{ "store", do_store, 8, 0, { 0 }, { WORD, VALUE, NUMBER } },
	{ "map", do_map, 10, 0, { 0 }, { REGION, REGION, NUMBER, NUMBER } },
	{ "fork", do_fork, 1, 0, { 0 }, { NUMBER } },
	{ "signal", do_signal, 4, 0, { 0 }, { NUMBER, NUMBER } },
	{ "pause", do_pause, 3, 0, { 0 }, { NUMBER } },
};

#define KINDS	COUNT_OF(kinds)

static const char *call_name(const struct thread *t)
{
	return kinds[t->call->kind].name;
}

/* read(2) and readv(2) also fail with EBADF if the descriptor is not open for reading. */
static void check_result(struct thread *t)
{
	const struct kind *kind = &kinds[t->call->kind];
	int i;

	if (t->ret >= 0) {
		if (t->ret > kind->most)
			fail("%s returned %ld", kind->name, t->ret);
		return;
	}
	if (t->ret == -EBADF && kind->args[0] != NONE)
		return;
	for (i = 0; i < ERRORS; i++) {
		if (kind->errors[i] && t->ret == -kind->errors[i])
			return;
	}
	fail("%s failed with %s, which is not documented", kind->name, strerrorname_np(-t->ret));
}

#endif /* CALLS_TEST_H */
