#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the examples of the library and of its manual pages. Each example ends by itself. Its exit
# status is 0 if its results are as expected, and 4 if this kernel lacks a feature. A pthreads
# program that is built with the library, NAME-memwait, must print the same output as NAME. An
# example that is shown in a manual page must print NAME.txt (without the licence line), which the
# page shows. No example may leave a file behind.
examples=${MEMWAIT_EXAMPLES:-../../userlib/examples}
slowness=${MEMWAIT_SLOWNESS:-1}
cd "$(dirname "$0")" || exit 1

programs=
for program in "$examples"/*; do
	[ -f "$program" ] && [ -x "$program" ] && programs="$programs $program"
done
if [ -z "$programs" ]; then
	echo "1..0 # SKIP no examples in $examples: make -C userlib/examples all manual"
	exit 4
fi

# Directories in which an example or the library could leave a file.
files()
{
	find . /tmp /dev/shm -maxdepth 1
}
before=$(files)

echo "TAP version 13"
# shellcheck disable=SC2086
set -- $programs
echo "1..$(($# + 1))"
bad=0
number=0
for program; do
	number=$((number + 1))
	echo "# ${program##*/}"
	timeout -k 5 $((300 * slowness)) "$program" >/tmp/example.out 2>&1 </dev/null
	status=$?
	sed 's/^/#   /' /tmp/example.out
	if [ $status -eq 0 ] && [ -x "${program%-memwait}" ] && [ "${program%-memwait}" != "$program" ]; then
		timeout -k 5 $((300 * slowness)) "${program%-memwait}" >/tmp/classic.out 2>&1 </dev/null
		cmp -s /tmp/example.out /tmp/classic.out || status="0, but its output differs"
	fi
	if [ "$status" = 0 ] && [ -e "$program.txt" ]; then
		sed '1{/SPDX/d}' "$program.txt" | cmp -s /tmp/example.out - ||
			status="0, but its output differs from the page"
	fi
	case $status in
	0) echo "ok $number ${program##*/}" ;;
	4) echo "ok $number ${program##*/} # SKIP $(tail -n 1 /tmp/example.out)" ;;
	*)
		echo "not ok $number ${program##*/}: exit $status"
		bad=1
		;;
	esac
done
rm -f /tmp/example.out /tmp/classic.out
number=$((number + 1))
left=$(files | grep -vxF "$before")
if [ -z "$left" ]; then
	echo "ok $number no file is left"
else
	echo "$left" | sed 's/^/# /'
	echo "not ok $number no file is left"
	bad=1
fi
exit $bad
