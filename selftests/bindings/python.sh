#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the Python binding, with and without the device, and its examples, which check themselves.
cd "$(dirname "$0")/python" || exit 1
# shellcheck source=selftests/bindings/tap
. ../tap
examples=../userlib/python/examples
[ -d "$examples" ] || examples=../../../userlib/bindings/python/examples
check_all "tests" 800 python3 -B run.py
check_all "tests of tasks, with uvloop" 800 python3 -B run.py uvloop
check "an interpreter exits while its threads wait" 300 python3 -B ends.py
check "an interpreter exits while objects exist" 300 python3 -B alive.py
for example in "$examples"/*.py; do
	check "example ${example##*/}" 300 python3 -B "$example"
done
trap 'exit 1' HUP INT TERM
trap 'mv /dev/memwait.away /dev/memwait' EXIT
mv /dev/memwait /dev/memwait.away
check "without the device" 120 python3 -B absent.py
mv /dev/memwait.away /dev/memwait
trap - EXIT
check "the example in the README" 300 sh -euc "
	sed -n '/^\`\`\`python\$/,/^\`\`\`\$/p' '$examples/../README.md' | sed '/^\`\`\`/d' >/tmp/readme.py
	sed -n '/^\`\`\`console\$/,/^\`\`\`\$/p' '$examples/../README.md' | sed '/^\`\`\`/d; /^\\$/d' >/tmp/readme.txt
	test -s /tmp/readme.txt
	python3 -B /tmp/readme.py | tee /tmp/readme.out
	cmp /tmp/readme.out /tmp/readme.txt"
rm -f /tmp/readme.*
finish
