#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the test program of the Rust binding, which prints a line for each of its tests, and the
# examples, whose exit status shows whether their results are as expected.
cd "$(dirname "$0")" || exit 1
number=0
bad=0

point()
{
	number=$((number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $number $2"
	else
		echo "not ok $number $2: exit $1"
		bad=1
	fi
}

echo "TAP version 13"
timeout -k 5 $((200 * ${MEMWAIT_SLOWNESS:-1})) rust/objects >/tmp/rust.out 2>/tmp/rust.err </dev/null
status=$?
while read -r line; do
	case $line in
	"ok "*) point 0 "${line#ok }" ;;
	"not ok "*) point failed "${line#not ok }" ;;
	esac
done </tmp/rust.out
[ $status = 0 ] || sed 's/^/# /' /tmp/rust.err
point $status "the program"
for program in rust/*.example; do
	text=${program%.example}.txt
	timeout -k 5 $((60 * ${MEMWAIT_SLOWNESS:-1})) "$program" >/tmp/rust.out 2>&1 </dev/null
	status=$?
	sed 's/^/# /' /tmp/rust.out
	if [ $status = 0 ] && [ -e "$text" ] && ! cmp -s /tmp/rust.out "$text"; then
		status="0, but its output differs from the documentation"
	fi
	program=${program#*/}
	point "$status" "example ${program%.example}"
done
[ -e rust/tokio.example ] || point 0 "example tokio # SKIP it was built without the crate tokio"
rm -f /tmp/rust.out /tmp/rust.err
echo "1..$number"
exit $bad
