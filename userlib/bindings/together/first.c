// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The C program, which uses a thread that blocks. It creates the shared file, and holds the mutex
 * until all other programs have reported. Then it takes its turns like them: first FILE
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memwait.h>

#include "together.h"

static bool take_turns(char *memory)
{
	memwait_mutex_t *mutex = (memwait_mutex_t *)(void *)(memory + MUTEX);
	bool right = true;
	int i;

	for (i = 0; i < ROUNDS && right; i++) {
		if (memwait_mutex_lock(mutex))
			return false;
		right = turn_begins(memory, 'C');
		usleep(HOLD_MS * 1000);
		right = turn_ends(memory, 'C') && right;
		if (memwait_mutex_unlock(mutex))
			return false;
	}
	return right;
}

/* Each of the other programs sends its name at its start and at its end. */
static bool hear(memwait_channel_t *channel, const char *what)
{
	char item[ITEM + 1] = "";
	int i;

	for (i = 1; i < PLAYERS; i++) {
		if (memwait_channel_recv(channel, item, ITEM))
			return false;
		printf("%s %s\n", item, what);
	}
	return true;
}

int main(int argc, char **argv)
{
	memwait_channel_t *channel;
	memwait_mutex_t *mutex;
	char name[4096];
	uint32_t *turns;
	char *memory;
	int fd, i, c, letters[256] = { 0 };

	if (argc != 2)
		return 2;
	snprintf(name, sizeof(name), "%s.XXXXXX", argv[1]);
	/*
	 * Initialise the file before it gets its name, because the other programs use it as soon as
	 * it exists.
	 */
	fd = mkstemp(name);
	if (fd < 0 || ftruncate(fd, SIZE))
		return 1;
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return 1;
	mutex = (memwait_mutex_t *)(void *)(memory + MUTEX);
	channel = (memwait_channel_t *)(void *)(memory + CHANNEL);
	if (memwait_mutex_init(mutex, MEMWAIT_MUTEX_FAIR) ||
	    memwait_channel_init(channel, SIZE - CHANNEL, 0, ITEM, CAPACITY) ||
	    memwait_mutex_lock(mutex) || rename(name, argv[1]))
		return 1;

	if (!hear(channel, "is there") || memwait_mutex_unlock(mutex))
		return 1;
	if (!take_turns(memory)) {
		puts("another program held the mutex at the same time");
		return 1;
	}
	if (!hear(channel, "has had its turns"))
		return 1;
	turns = (uint32_t *)(void *)(memory + TURNS);
	printf("%u turns: %s\n", *turns, memory + LOG);
	for (i = 0; i < PLAYERS * ROUNDS; i++)
		letters[(unsigned char)memory[LOG + i]]++;
	for (c = 0, i = 0; i < 256; i++)
		c += letters[i] == ROUNDS;
	return *turns != PLAYERS * ROUNDS || c != PLAYERS;
}
