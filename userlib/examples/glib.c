// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* A memwait loop in GLib's main loop, which receives items that a thread sends over a channel. */
#include <errno.h>
#include <glib-unix.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>

#include <memwait.h>

#define ITEMS	100

static memwait_loop_t *loop;
static memwait_channel_t *channel;
static memwait_op_t op;
static int item, sum;

static gboolean dispatch(gint fd, GIOCondition condition, gpointer data)
{
	(void)fd;
	(void)condition;
	(void)data;
	if (memwait_loop_dispatch(loop, MEMWAIT_ALL) < 0)
		exit(1);
	return G_SOURCE_CONTINUE;
}

static void received(memwait_op_t *again, int result, void *data)
{
	do {
		if (result == EPIPE) {
			/* Closed, and empty. */
			printf("the sum is %d\n", sum);
			g_main_loop_quit(data);
			return;
		}
		if (result)
			exit(1);
		sum += item;
		result = memwait_channel_recv_async(channel, &item, sizeof(item), again);
	} while (result != EINPROGRESS);
}

static gpointer send_items(gpointer data)
{
	int i;

	(void)data;
	for (i = 1; i <= ITEMS; i++)
		if (memwait_channel_send(channel, &i, sizeof(i)))
			break;
	if (memwait_channel_close(channel))
		exit(1);
	return NULL;
}

int main(void)
{
	GMainLoop *main_loop = g_main_loop_new(NULL, FALSE);
	GThread *thread;
	guint source;
	int err = memwait_loop_new(&loop, 0);
	size_t size;

	if (err) {
		fprintf(stderr, "memwait_loop_new: %s\n", memwait_strerror(err));
		return 1;
	}
	source = g_unix_fd_add(memwait_loop_fd(loop), G_IO_IN, dispatch, NULL);

	size = memwait_channel_size(sizeof(int), 8);
	channel = malloc(size);
	if (!channel || memwait_channel_init(channel, size, 0, sizeof(int), 8))
		return 1;
	if (memwait_op_init(&op, loop, received, main_loop) ||
	    memwait_channel_recv_async(channel, &item, sizeof(item), &op) != EINPROGRESS)
		return 1;
	thread = g_thread_new("sender", send_items, NULL);
	g_main_loop_run(main_loop);

	g_thread_join(thread);
	g_source_remove(source);
	g_main_loop_unref(main_loop);
	err = memwait_channel_destroy(channel);
	free(channel);
	return !err && sum == ITEMS * (ITEMS + 1) / 2 && !memwait_loop_close(loop) ? 0 : 1;
}
