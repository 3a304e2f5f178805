#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# R26: insmod, rmmod and rmmod while in use. MEMWAIT_KO names the module's file where it is not
# installed. The module is left loaded if it was loaded before.

loads=${MEMWAIT_LOADS:-200}
count=0
bad=0

loaded()
{
	[ -d /sys/module/memwait ]
}

load()
{
	if [ -n "$MEMWAIT_KO" ]; then
		insmod "$MEMWAIT_KO"
	else
		modprobe memwait
	fi
}

unload()
{
	rmmod memwait
}

# result STATUS TEXT: one line of TAP.
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

echo "TAP version 13"
if [ "$(id -u)" -ne 0 ]; then
	echo "1..0 # SKIP needs root"
	exit 4
fi
if ! loaded && ! load 2>/dev/null; then
	echo "1..0 # SKIP the module is not installed, and MEMWAIT_KO does not name it"
	exit 4
fi
echo "1..7"

[ -c /dev/memwait ]
result $? "R26 loaded: the device exists"

(exec 3<>/dev/memwait)
result $? "R26 the device opens"

exec 3<>/dev/memwait
message=$(unload 2>&1)
status=$?
[ $status -ne 0 ] && loaded
result $? "R26 rmmod while open is refused"

# kmod and busybox word EBUSY differently.
echo "$message" | grep -qE 'in use|busy|temporarily unavailable'
result $? "R26 rmmod while open says that the module is busy: $message"

exec 3>&-
unload && ! loaded && ! [ -e /dev/memwait ]
result $? "R26 rmmod after close removes module and device"

load_and_unload
result $? "R26 $loads times insmod and rmmod"

load && [ -c /dev/memwait ]
result $? "R26 loads again after that"

exit $bad
