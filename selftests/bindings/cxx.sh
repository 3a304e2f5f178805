#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the test programs of the C++ binding, with a point for each of their tests, and the binding's
# examples, whose exit status shows whether their results are as expected.
cd "$(dirname "$0")" || exit 1
examples=${MEMWAIT_CXX_EXAMPLES:-userlib/cxx/examples}
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
for program in cxx/*; do
	if [ ! -f "$program" ] || [ ! -x "$program" ]; then
		continue
	fi
	timeout -k 5 $((300 * ${MEMWAIT_SLOWNESS:-1})) "$program" >/tmp/cxx.out 2>&1 </dev/null
	status=$?
	while read -r line; do
		case $line in
		"ok "*) point 0 "${program#*/}: ${line#ok }" ;;
		"not ok "*) point failed "${program#*/}: ${line#not ok }" ;;
		*) echo "# ${line#\# }" ;;
		esac
	done </tmp/cxx.out
	point $status "${program#*/}"
done
for program in "$examples"/*; do
	if [ ! -f "$program" ] || [ ! -x "$program" ]; then
		continue
	fi
	timeout -k 5 $((300 * ${MEMWAIT_SLOWNESS:-1})) "$program" >/tmp/cxx.out 2>&1 </dev/null
	status=$?
	sed 's/^/# /' /tmp/cxx.out
	if [ $status = 0 ] && [ -e "$program.txt" ] && ! cmp -s /tmp/cxx.out "$program.txt"; then
		status="0, but its output differs from the documentation"
	fi
	point "$status" "example ${program##*/}"
done
rm -f /tmp/cxx.out
[ $number -gt 0 ] || point "failed, nothing was built" programs
echo "1..$number"
exit $bad
