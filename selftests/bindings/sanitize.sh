#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the Python and Node.js bindings with extensions that are built with AddressSanitizer and
# UndefinedBehaviorSanitizer.
cd "$(dirname "$0")" || exit 1
if [ ! -e sanitize/runtime ]; then
	echo "1..0 # SKIP extensions with sanitizers were not built"
	exit 4
fi
echo "TAP version 13"
number=0
bad=0

# point TEXT COMMAND...: runs a test
point()
{
	text=$1
	shift
	number=$((number + 1))
	if env LD_PRELOAD="$(cat sanitize/runtime)" ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 \
		UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH="$PWD/sanitize/python" \
		MEMWAIT_NODE="$PWD/sanitize/node" "$@" >/tmp/sanitize.out 2>&1; then
		echo "ok $number $text"
	else
		echo "not ok $number $text: exit $?"
		bad=1
	fi
	sed 's/^/# /' /tmp/sanitize.out
}

point "the tests of Python" python3 -B python/run.py
# Run only the tests that need one process.
point "the tests of Node.js" node --allow-natives-syntax --expose-gc -e '
	for (const part of ["words", "objects", "workers", "scripts"])
		require("./node/" + part);
	require("./node/harness").runTests();'
rm -f /tmp/sanitize.out
echo "1..$number"
exit $bad
