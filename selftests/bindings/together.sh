#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Processes in five languages take turns at a mutex and send through a channel. If one of them cannot start, all exit.
together=${MEMWAIT_TOGETHER:-$(dirname "$0")/userlib/together/together.sh}
echo "TAP version 13"
echo "1..2"
timeout -k 5 $((600 * ${MEMWAIT_SLOWNESS:-1})) "$together" >/tmp/together.out 2>&1 </dev/null
status=$?
sed 's/^/# /' /tmp/together.out
rm -f /tmp/together.out
name="a thread in C, a coroutine in C++, a task in Python, promises in Node and a future in Rust"
bad=0
if [ $status -ne 0 ]; then
	echo "not ok 1 $name: exit $status"
	bad=1
else
	echo "ok 1 $name"
fi

# This node fails immediately, as if its package were missing.
elsewhere=$(mktemp -d)
printf '#!/bin/sh\nexit 1\n' >"$elsewhere/node"
chmod 755 "$elsewhere/node"
name="if one process fails, the others exit"
PATH=$elsewhere:$PATH timeout -k 5 $((200 * ${MEMWAIT_SLOWNESS:-1})) "$together" "$elsewhere/file" \
	>/tmp/together.out 2>&1 </dev/null
status=$?
sed 's/^/# /' /tmp/together.out
rm -f /tmp/together.out
# Killed processes may not have exited yet.
limit=$((600 * ${MEMWAIT_SLOWNESS:-1}))
while grep -qsF "$elsewhere/file" /proc/[0-9]*/cmdline && [ $limit -gt 0 ]; do
	sleep 0.1
	limit=$((limit - 1))
done
if [ $status -ne 1 ]; then
	echo "not ok 2 $name: exit $status"
	bad=1
elif grep -lsF "$elsewhere/file" /proc/[0-9]*/cmdline; then
	echo "not ok 2 $name: a process is left"
	bad=1
elif [ "$(ls "$elsewhere")" != node ]; then
	echo "not ok 2 $name: a file is left"
	bad=1
else
	echo "ok 2 $name"
fi
rm -rf "$elsewhere"
exit $bad
