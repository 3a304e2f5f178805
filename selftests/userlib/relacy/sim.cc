// SPDX-License-Identifier: GPL-2.0
/*
 * The simulation of the C sources with Relacy; see sim.h.
 *
 * Relacy has templates for atomics and for data, which contain their own memory. In this simulation
 * the C sources define the memory. The state that Relacy needs for a word is stored separately, in
 * a shadow. The shadow is found by the word's address, and is created when the word is first used.
 *
 * There are two differences from Relacy's own atomics. A compare-and-swap may fail because it reads
 * an old value, because a failed compare-and-swap is only a load. sim_memory contains the latest
 * values, so that they can be checked when all threads have ended.
 *
 * Relacy never simulates a load that takes effect after a store that follows it in its thread. It
 * runs the threads step by step, and a load returns only present or earlier values.
 */
#include <relacy/relacy.hpp>

#include <cstdarg>
#include <cstring>

#include "sim.h"

namespace
{

const size_t granule = 4;

/* The shadow of an atomic word, with as much of the word's history as Relacy uses, or of data. */
struct shadow {
	void *address;
	size_t size;
	rl::atomic_data *atomic;
	rl::var_data *data;
	uint64_t past[rl::atomic_history_size];
	uint64_t now;
	rl::timestamp_t last[SIM_THREADS];	/* time of each thread's last access */
};

shadow shadows[SIM_MEMORY / granule];
shadow *of_address[SIM_MEMORY / granule];
unsigned int nr_shadows;
bool is_freed[SIM_MEMORY / granule];

const sim_scenario *scenario;
bool running;
void (*make_visible)(rl::atomic_data *data);

/* The thread-local data of the sources: a section that is swapped when another thread runs. */
unsigned char tls_of_thread[SIM_THREADS][256];
unsigned int tls_thread;
extern "C" unsigned char __start_sim_tls[] __attribute__((__weak__));
extern "C" unsigned char __stop_sim_tls[] __attribute__((__weak__));

struct text_event {
	char text[160];

	void output(std::ostream &stream) const
	{
		stream << text;
	}
};

void note(const rl::debug_info &place, const char *format, ...)
{
	rl::context &context = rl::ctx();
	text_event event;
	va_list arguments;

	if (!context.collecting_history())
		return;
	va_start(arguments, format);
	vsnprintf(event.text, sizeof(event.text), format, arguments);
	va_end(arguments);
	context.exec_log(place, event);
}

rl::debug_info place_of(const sim_site *site)
{
	return rl::debug_info(site->function, site->file, site->line);
}

void switch_tls()
{
	size_t size = __stop_sim_tls - __start_sim_tls;
	unsigned int thread = sim_thread();

	if (thread == tls_thread)
		return;
	memcpy(tls_of_thread[tls_thread], __start_sim_tls, size);
	memcpy(__start_sim_tls, tls_of_thread[thread], size);
	tls_thread = thread;
}

void step()
{
	sim_step();
	sim_user_step();
}

bool is_shared(const volatile void *address)
{
	const volatile unsigned char *byte = (const volatile unsigned char *)address;

	return byte >= sim_memory && byte < sim_memory + SIM_MEMORY;
}

bool is_simulated(const volatile void *address)
{
	return running && is_shared(address);
}

size_t granule_of(const volatile void *address)
{
	return ((const volatile unsigned char *)address - sim_memory) / granule;
}

uint64_t read_memory(const volatile void *address, size_t size)
{
	switch (size) {
	case 1: return *(const volatile uint8_t *)address;
	case 2: return *(const volatile uint16_t *)address;
	case 4: return *(const volatile uint32_t *)address;
	default: return *(const volatile uint64_t *)address;
	}
}

void write_memory(volatile void *address, size_t size, uint64_t value)
{
	switch (size) {
	case 1: *(volatile uint8_t *)address = value; break;
	case 2: *(volatile uint16_t *)address = value; break;
	case 4: *(volatile uint32_t *)address = value; break;
	default: *(volatile uint64_t *)address = value; break;
	}
}

shadow *new_shadow(const volatile void *address, size_t size)
{
	shadow *s = &shadows[nr_shadows++];
	size_t i;

	s->address = (void *)address;
	s->size = size;
	s->atomic = NULL;
	s->data = NULL;
	memset(s->last, 0, sizeof(s->last));
	for (i = 0; i < size; i += granule)
		of_address[granule_of(address) + i / granule] = s;
	return s;
}

/*
 * Returns the atomic at @address. If @address is the second half of an atomic, returns that atomic.
 */
shadow *atomic_at(const volatile void *address, size_t size)
{
	rl::thread_info_base *thread = rl::ctx().threadx_;
	shadow *s = of_address[granule_of(address)];
	unsigned int i;

	if (is_freed[granule_of(address)])
		sim_fail("memory that has been freed is used");
	if (!s) {
		if (size > granule && of_address[granule_of(address) + 1])
			sim_fail("an atomic of %zu bytes overlaps another atomic", size);
		s = new_shadow(address, size);
		s->atomic = rl::ctx().atomic_ctor(NULL);
		make_visible(s->atomic);
		i = thread->atomic_init(s->atomic);
		s->now = read_memory(address, size);
		s->past[i % rl::atomic_history_size] = s->now;
	}
	if (!s->atomic)
		sim_fail("an atomic is also used as data");
	if (s->size < size)
		sim_fail("an atomic of %zu bytes overlaps another atomic", size);
	s->last[thread->index_] = ++thread->own_acq_rel_order_;
	return s;
}

unsigned int half_of(const shadow *s, const volatile void *address)
{
	return 8 * (unsigned int)((const volatile char *)address - (const char *)s->address);
}

uint64_t mask_of(size_t size)
{
	return size == 8 ? ~0ULL : (1ULL << 8 * size) - 1;
}

/* Returns a value that C11 allows a load to return. */
uint64_t load(shadow *s, int order)
{
	rl::thread_info_base *thread = rl::ctx().threadx_;
	unsigned int i;

	if (order == SIM_SEQ_CST)
		i = thread->atomic_load_seq_cst(s->atomic);
	else if (order == SIM_ACQUIRE)
		i = thread->atomic_load_acquire(s->atomic);
	else
		i = thread->atomic_load_relaxed(s->atomic);
	return s->past[i];
}

/* Makes the value the latest one. */
void becomes(shadow *s, unsigned int i, uint64_t value)
{
	s->past[i] = value;
	s->now = value;
	write_memory(s->address, s->size, value);
}

void change(shadow *s, uint64_t value, int order)
{
	rl::thread_info_base *thread = rl::ctx().threadx_;
	bool aba;
	unsigned int i;

	switch (order) {
	case SIM_RELAXED: i = thread->atomic_rmw_relaxed(s->atomic, aba); break;
	case SIM_ACQUIRE: i = thread->atomic_rmw_acquire(s->atomic, aba); break;
	case SIM_RELEASE: i = thread->atomic_rmw_release(s->atomic, aba); break;
	case SIM_ACQ_REL: i = thread->atomic_rmw_acq_rel(s->atomic, aba); break;
	default: i = thread->atomic_rmw_seq_cst(s->atomic, aba); break;
	}
	becomes(s, i, value);
}

uint64_t result_of(sim_operation operation, uint64_t value, uint64_t operand)
{
	switch (operation) {
	case SIM_SET: return operand;
	case SIM_ADD: return value + operand;
	case SIM_SUB: return value - operand;
	case SIM_AND: return value & operand;
	case SIM_OR: return value | operand;
	case SIM_XOR: return value ^ operand;
	}
	abort();
}

int order_of(sim_site *site)
{
	site->reached = 1;
	return site->weakened < 0 ? site->order : site->weakened;
}

/* Simulates an access to data. */
void touch(const volatile void *address, size_t size, bool writes)
{
	const volatile char *at = (const volatile char *)address;
	const volatile char *end = at + size;
	shadow *s;

	if (!is_simulated(address))
		return;
	at -= (uintptr_t)at % granule;
	for (; at < end; at += granule) {
		s = of_address[granule_of(at)];
		if (is_freed[granule_of(at)])
			sim_fail("memory that has been freed is used");
		if (!s) {
			s = new_shadow(at, granule);
			s->data = rl::ctx().var_ctor();
		}
		if (!s->data)
			sim_fail("an atomic is accessed as if it were data");
		if (writes ? !s->data->store(*rl::ctx().threadx_) :
			     !s->data->load(*rl::ctx().threadx_))
			sim_fail("data race: %s of byte %zu of the shared memory",
				 writes ? "write" : "read", (size_t)(at - (const volatile char *)
								     sim_memory));
	}
}

void clear()
{
	unsigned int i;

	for (i = 0; i < nr_shadows; i++) {
		if (shadows[i].atomic)
			rl::ctx().atomic_dtor(shadows[i].atomic);
		if (shadows[i].data)
			rl::ctx().var_dtor(shadows[i].data);
	}
}

template<int threads>
struct suite : rl::test_suite<suite<threads>, threads> {
	/* For the initial value of a word, which no thread has read and all threads may read. */
	static void make_visible_to_all(rl::atomic_data *data)
	{
		rl::atomic_data_impl<threads> *atomic =
			static_cast<rl::atomic_data_impl<threads> *>(data);
		size_t i;

		for (i = 0; i < rl::atomic_history_size; i++) {
			atomic->history_[i].busy_ = false;
			rl::foreach<threads>(atomic->history_[i].first_seen_order_,
					     rl::assign<(rl::timestamp_t)-1>);
		}
	}

	void before()
	{
		size_t size = __stop_sim_tls - __start_sim_tls;
		unsigned int i;

		/* The previous execution may have failed. */
		running = false;
		for (i = 0; i < nr_shadows; i++)
			of_address[granule_of(shadows[i].address)] =
				of_address[granule_of((char *)shadows[i].address +
						      shadows[i].size - 1)] = NULL;
		nr_shadows = 0;
		make_visible = make_visible_to_all;
		memset(is_freed, 0, sizeof(is_freed));
		memset(sim_memory, 0, SIM_MEMORY);
		tls_thread = sim_thread();
		memset(__start_sim_tls, 0, size);
		for (i = 0; i < SIM_THREADS; i++)
			memset(tls_of_thread[i], 0, size);
		scenario->set_up();
		running = true;
	}

	void thread(unsigned int index)
	{
		switch_tls();
		scenario->thread(index);
	}

	void after()
	{
		running = false;
		scenario->finish();
		clear();
	}
};

template<int threads>
bool simulate(rl::test_params &params)
{
	return rl::simulate<suite<threads> >(params);
}

} // namespace

extern "C" {

alignas(4096) unsigned char sim_memory[SIM_MEMORY];

uint64_t sim_load(const volatile void *word, size_t size, sim_site *site)
{
	uint64_t value;
	int order;

	if (!is_simulated(word))
		return read_memory(word, size);
	step();
	order = order_of(site);
	value = load(atomic_at(word, size), order);
	note(place_of(site), "%s: %llx, %s", site->access, (unsigned long long)value,
	     rl::format((rl::memory_order)order));
	return value;
}

void sim_store(volatile void *word, size_t size, uint64_t value, sim_site *site)
{
	rl::thread_info_base *thread;
	shadow *s;
	unsigned int i;
	int order;

	if (!is_simulated(word)) {
		write_memory(word, size, value);
		return;
	}
	step();
	order = order_of(site);
	s = atomic_at(word, size);
	thread = rl::ctx().threadx_;
	if (order == SIM_SEQ_CST)
		i = thread->atomic_store_seq_cst(s->atomic);
	else if (order == SIM_RELEASE)
		i = thread->atomic_store_release(s->atomic);
	else
		i = thread->atomic_store_relaxed(s->atomic);
	becomes(s, i, value & mask_of(size));
	note(place_of(site), "%s: %llx, %s", site->access, (unsigned long long)s->now,
	     rl::format((rl::memory_order)order));
}

uint64_t sim_change(volatile void *word, size_t size, sim_operation operation, uint64_t operand,
		    sim_site *site)
{
	uint64_t was, value;
	shadow *s;
	int order;

	if (!is_simulated(word)) {
		was = read_memory(word, size);
		write_memory(word, size, result_of(operation, was, operand));
		return was;
	}
	step();
	order = order_of(site);
	s = atomic_at(word, size);
	was = s->now;
	value = result_of(operation, was, operand) & mask_of(size);
	change(s, value, order);
	note(place_of(site), "%s: %llx -> %llx, %s", site->access, (unsigned long long)was,
	     (unsigned long long)value, rl::format((rl::memory_order)order));
	return was;
}

bool sim_compare_exchange(volatile void *word, size_t size, uint64_t *expected, uint64_t desired,
			  bool weak, sim_site *success, sim_site *failure)
{
	uint64_t value, wanted = *expected & mask_of(size);
	int order, failure_order;
	shadow *s;

	desired &= mask_of(size);
	if (!is_simulated(word)) {
		value = read_memory(word, size);
		if (value == wanted)
			write_memory(word, size, desired);
		*expected = value;
		return value == wanted;
	}
	step();
	order = order_of(success);
	failure_order = order_of(failure);
	s = atomic_at(word, size);
	value = s->now;
	if (value == wanted && !(weak && !sim_random(4))) {
		/* Relacy cannot undo a load. Only a relaxed load has no side effect. */
		if (failure_order == SIM_RELAXED && !sim_random(4))
			value = load(s, SIM_RELAXED);
		if (value == wanted) {
			change(s, desired, order);
			note(place_of(success), "%s: %llx -> %llx, %s", success->access,
			     (unsigned long long)wanted, (unsigned long long)desired,
			     rl::format((rl::memory_order)order));
			return true;
		}
	} else if (failure_order == SIM_RELAXED) {
		uint64_t older = load(s, SIM_RELAXED);

		/*
		 * If the old value is not a reason to fail, the latest value is a reason, and
		 * counts as read.
		 */
		if (older != wanted)
			value = older;
		else
			rl::ctx().threadx_->atomic_load_relaxed_rmw(s->atomic);
	} else if (failure_order == SIM_ACQUIRE) {
		rl::ctx().threadx_->atomic_load_acquire_rmw(s->atomic);
	} else {
		rl::ctx().threadx_->atomic_load_seq_cst_rmw(s->atomic);
	}
	*expected = value;
	note(place_of(success), "%s: failed, %llx, %s", success->access, (unsigned long long)value,
	     rl::format((rl::memory_order)failure_order));
	return false;
}

void sim_init(volatile void *word, size_t size, uint64_t value)
{
	if (is_simulated(word))
		sim_fail("initialised while others run");
	write_memory(word, size, value);
}

uint64_t sim_peek(const volatile void *word, size_t size)
{
	shadow *s = atomic_at(word, size);

	return load(s, SIM_RELAXED) >> half_of(s, word) & mask_of(size);
}

uint32_t sim_change_u32(volatile void *word, sim_operation operation, uint32_t operand)
{
	shadow *s = atomic_at(word, 4);
	unsigned int half = half_of(s, word);
	uint32_t was = (uint32_t)(s->now >> half);
	uint64_t value = (uint32_t)result_of(operation, was, operand);

	change(s, (s->now & ~(0xffffffffULL << half)) | value << half, SIM_SEQ_CST);
	return was;
}

void sim_free(const void *memory, size_t size)
{
	const char *at = (const char *)memory;
	rl::thread_info_base *thread = rl::ctx().threadx_;
	shadow *s;
	unsigned int i;

	for (; at < (const char *)memory + size; at += granule) {
		s = of_address[granule_of(at)];
		if (s && s->data && !s->data->store(*thread))
			sim_fail("data race: freed while it may be used");
		for (i = 0; s && s->atomic && i < scenario->threads; i++) {
			if (thread->acq_rel_order_[i] < s->last[i])
				sim_fail("an atomic is freed while it may be used");
		}
		is_freed[granule_of(at)] = true;
	}
	sim_note("freed");
}

uint64_t sim_latest(const volatile void *word, size_t size)
{
	return read_memory(word, size);
}

void sim_acquire(const sim_sync *sync)
{
	rl::thread_info_base *thread = rl::ctx().threadx_;
	unsigned int i;

	thread->own_acq_rel_order_++;
	for (i = 0; i < scenario->threads; i++)
		thread->acq_rel_order_[i] = std::max(thread->acq_rel_order_[i], sync->seen[i]);
}

void sim_release(sim_sync *sync)
{
	rl::thread_info_base *thread = rl::ctx().threadx_;
	unsigned int i;

	thread->own_acq_rel_order_++;
	for (i = 0; i < scenario->threads; i++)
		sync->seen[i] = std::max(thread->acq_rel_order_[i], sync->seen[i]);
}

unsigned int sim_thread()
{
	return rl::ctx().threadx_->index_;
}

void sim_step()
{
	rl::ctx().sched();
	switch_tls();
}

unsigned int sim_random(unsigned int limit)
{
	return rl::rand(limit);
}

bool sim_park(bool timed)
{
	rl::unpark_reason reason = rl::ctx().park_current_thread(timed, false, false, RL_INFO);

	switch_tls();
	return reason == rl::unpark_reason_normal;
}

void sim_unpark(unsigned int thread)
{
	rl::ctx().unpark_thread(thread, false, RL_INFO);
}

bool sim_is_running()
{
	return running;
}

void sim_note(const char *format, ...)
{
	text_event event;
	va_list arguments;

	if (!running || !rl::ctx().collecting_history())
		return;
	va_start(arguments, format);
	vsnprintf(event.text, sizeof(event.text), format, arguments);
	va_end(arguments);
	rl::ctx().exec_log(RL_INFO, event);
}

static char last_failure[160];

void sim_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(last_failure, sizeof(last_failure), format, arguments);
	va_end(arguments);
	running = false;
	rl::ctx().fail_test(last_failure, rl::test_result_user_assert_failed, RL_INFO);
}

uint64_t sim_run(const sim_scenario *what, uint64_t executions, bool show, char *failure,
		 size_t size)
{
	rl::ostringstream nowhere;
	rl::test_params params;
	bool fine;

	scenario = what;
	if (__stop_sim_tls - __start_sim_tls > (ptrdiff_t)sizeof(*tls_of_thread))
		abort();
	params.iteration_count = executions;
	params.execution_depth_limit = 4000;
	params.progress_stream = &nowhere;
	if (!show)
		params.output_stream = &nowhere;
	last_failure[0] = '\0';
	switch (what->threads) {
	case 2: fine = simulate<2>(params); break;
	case 3: fine = simulate<3>(params); break;
	case 4: fine = simulate<4>(params); break;
	default: abort();
	}
	running = false;
	if (fine)
		return 0;
	snprintf(failure, size, "%s", last_failure[0] ? last_failure :
		 rl::test_result_str(params.test_result));
	return params.stop_iteration;
}

/*
 * With -fsanitize=thread GCC calls these functions for each memory access of the C sources. The
 * functions for atomics are deliberately missing: a use of an atomic without an explicit order, by
 * a function of <stdatomic.h>, fails to link.
 */

#define HOOK(name, size, writes) \
	void __tsan_##name(void *address); \
	void __tsan_##name(void *address) \
	{ \
		touch(address, size, writes); \
	}

HOOK(read1, 1, false)
HOOK(read2, 2, false)
HOOK(read4, 4, false)
HOOK(read8, 8, false)
HOOK(read16, 16, false)
HOOK(write1, 1, true)
HOOK(write2, 2, true)
HOOK(write4, 4, true)
HOOK(write8, 8, true)
HOOK(write16, 16, true)
HOOK(unaligned_read2, 2, false)
HOOK(unaligned_read4, 4, false)
HOOK(unaligned_read8, 8, false)
HOOK(unaligned_read16, 16, false)
HOOK(unaligned_write2, 2, true)
HOOK(unaligned_write4, 4, true)
HOOK(unaligned_write8, 8, true)
HOOK(unaligned_write16, 16, true)

void __tsan_read_range(void *address, size_t size);
void __tsan_read_range(void *address, size_t size)
{
	touch(address, size, false);
}

void __tsan_write_range(void *address, size_t size);
void __tsan_write_range(void *address, size_t size)
{
	touch(address, size, true);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *)
{
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

/* The C sources call these functions instead of memcpy() and memset(). */

void *sim_memcpy(void *to, const void *from, size_t size)
{
	touch(from, size, false);
	touch(to, size, true);
	return memcpy(to, from, size);
}

void *sim_memset(void *to, int byte, size_t size)
{
	touch(to, size, true);
	return memset(to, byte, size);
}

} // extern "C"
