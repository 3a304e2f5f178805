#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# R26: insmod, rmmod, and rmmod while the module is in use. R31: the default limits. If the module
# is not installed, MEMWAIT_KO is the name of its file. If the module was loaded before the test, it
# is loaded again afterwards.

loads=${MEMWAIT_LOADS:-50}
count=0
bad=0

loaded()
{
	[ -d /sys/module/memwait ]
}

load()
{
	if [ -n "$MEMWAIT_KO" ]; then
		insmod "$MEMWAIT_KO" "$@"
	else
		modprobe memwait "$@"
	fi
}

unload()
{
	rmmod memwait
}

# Waits until the module has no users. A process that has just died may use the module a moment
# longer.
await_unused()
{
	i=0
	while [ "$(cat /sys/module/memwait/refcnt)" != 0 ] && [ $i -lt 30 ]; do
		sleep 1
		i=$((i + 1))
	done
}

# result STATUS TEXT: prints one line of TAP.
result()
{
	count=$((count + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $count $2"
	else
		echo "not ok $count $2"
		bad=1
	fi
}

load_and_unload()
{
	i=0
	while [ $i -lt "$loads" ]; do
		load && unload || return 1
		i=$((i + 1))
	done
}

# limit NAME: prints the limit that is in effect.
limit()
{
	cat "/sys/module/memwait/parameters/max_user_$1"
}

# grows NAME KIB: checks that the limit is the memory divided by KIB. The size of the machine's
# memory may have changed slightly since the module was loaded.
grows()
{
	memory=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
	[ "$memory" -ge 262144 ] || memory=262144
	[ $((100 * $(limit "$1") * $2)) -ge $((99 * memory)) ] &&
		[ $((100 * $(limit "$1") * $2)) -le $((101 * memory)) ]
}

echo "TAP version 13"
if [ "$(id -u)" -ne 0 ]; then
	echo "1..0 # SKIP needs root"
	exit 4
fi
if ! loaded && ! load 2>/dev/null; then
	echo "1..0 # SKIP the module is not installed, and MEMWAIT_KO does not name it"
	exit 4
fi
echo "1..10"

[ -c /dev/memwait ]
result $? "R26 loaded: the device exists"

(exec 3<>/dev/memwait)
result $? "R26 the device opens"

exec 3<>/dev/memwait
message=$(unload 2>&1)
status=$?
[ $status -ne 0 ] && loaded
result $? "R26 rmmod while open is refused"

# kmod and busybox print different messages for EBUSY.
echo "$message" | grep -qE 'in use|busy|temporarily unavailable'
result $? "R26 rmmod while open says that the module is busy: $message"

exec 3>&-
await_unused
unload && ! loaded && ! [ -e /dev/memwait ]
result $? "R26 rmmod after close removes module and device"

load_and_unload
result $? "R26 $loads times insmod and rmmod"

load max_user_waits=1234 && [ -c /dev/memwait ]
result $? "R26 loads again after that"

[ "$(limit waits)" = 1234 ] && grows contexts 256
result $? "R31 a limit that is set when the module is loaded holds"

unload && load
grows waits 16 && grows contexts 256 && grows owners 64
result $? "R31 other limits grow with the memory"

# A wait with a deadline and MEMWAIT_OWNED takes 288 bytes, a context with its file 820, an owner 280.
# A pin counts as 8 waits, and can hold 12 KiB of an exited process for a single wait.
taken=$(($(limit waits) * 288 + $(limit contexts) * 820 + $(limit owners) * 280))
taken=$((taken + $(limit waits) * 12288 / 9))
[ $taken -lt $((memory * 1024 / 7)) ] || [ "$memory" -eq 262144 ]
result $? "R31 all of them are a small part: $((taken >> 20)) of $((memory >> 10)) MiB"

exit $bad
