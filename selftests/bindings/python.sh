#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the Python binding, with and without the device, and its examples, which check
# their own results.
cd "$(dirname "$0")/python" || exit 1
examples=../userlib/python/examples
[ -d "$examples" ] || examples=../../../userlib/bindings/python/examples
echo "TAP version 13"
number=0
bad=0

# point TEXT COMMAND...: runs a test
point()
{
	text=$1
	shift
	number=$((number + 1))
	if "$@" >/tmp/python.out 2>&1; then
		echo "ok $number $text"
	else
		echo "not ok $number $text: exit $?"
		bad=1
	fi
	sed 's/^/# /' /tmp/python.out
}

# points TEXT COMMAND...: runs a program that prints "ok NAME" or "not ok NAME" for each of its tests
points()
{
	text=$1
	shift
	"$@" >/tmp/python.out 2>&1
	status=$?
	while IFS= read -r line; do
		case $line in
		"ok "*)
			number=$((number + 1))
			echo "ok $number $text: ${line#ok }"
			;;
		"not ok "*)
			number=$((number + 1))
			echo "not ok $number $text: ${line#not ok }"
			bad=1
			;;
		*) echo "# ${line#"# "}" ;;
		esac
	done </tmp/python.out
	point "$text: the program" sh -c "exit $status"
}

points "tests" python3 -B run.py
points "tests of tasks, with uvloop" python3 -B run.py uvloop
point "an interpreter exits while its threads wait" python3 -B ends.py
point "an interpreter exits while objects exist" python3 -B alive.py
for example in "$examples"/*.py; do
	point "example ${example##*/}" python3 -B "$example"
done
trap 'exit 1' HUP INT TERM
trap 'mv /dev/memwait.away /dev/memwait' EXIT
mv /dev/memwait /dev/memwait.away
point "without the device" timeout -k 5 $((120 * ${MEMWAIT_SLOWNESS:-1})) python3 -B absent.py
mv /dev/memwait.away /dev/memwait
trap - EXIT
point "README's example" sh -euc "
	sed -n '/^\`\`\`python\$/,/^\`\`\`\$/p' '$examples/../README.md' | sed '/^\`\`\`/d' >/tmp/readme.py
	sed -n '/^\`\`\`console\$/,/^\`\`\`\$/p' '$examples/../README.md' | sed '/^\`\`\`/d; /^\\$/d' >/tmp/readme.txt
	test -s /tmp/readme.txt
	python3 -B /tmp/readme.py | tee /tmp/readme.out
	cmp /tmp/readme.out /tmp/readme.txt"
rm -f /tmp/python.out /tmp/readme.*
echo "1..$number"
exit $bad
