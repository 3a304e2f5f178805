#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Five languages, in five processes, take turns at one mutex and send through one channel.
together=${MEMWAIT_TOGETHER:-$(dirname "$0")/userlib/together/together.sh}
echo "TAP version 13"
echo "1..1"
timeout -k 5 $((600 * ${MEMWAIT_SLOWNESS:-1})) "$together" >/tmp/together.out 2>&1 </dev/null
status=$?
sed 's/^/# /' /tmp/together.out
rm -f /tmp/together.out
name="a thread in C, a coroutine in C++, a task in Python, promises in Node and a future in Rust"
if [ $status -ne 0 ]; then
	echo "not ok 1 $name: exit $status"
	exit 1
fi
echo "ok 1 $name"
