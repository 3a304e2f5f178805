#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the Python and Node.js bindings with extensions that are built with AddressSanitizer and
# UndefinedBehaviorSanitizer.
cd "$(dirname "$0")" || exit 1
if [ ! -e sanitize/runtime ]; then
	echo "1..0 # SKIP extensions with sanitizers were not built"
	exit 4
fi
# shellcheck source=selftests/bindings/tap
. ./tap

# Runs an interpreter with these extensions.
set -- env "LD_PRELOAD=$(cat sanitize/runtime)" ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 \
	UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc "PYTHONPATH=$PWD/sanitize/python" \
	"MEMWAIT_NODE=$PWD/sanitize/node"
check_all Python 800 "$@" python3 -B python/run.py
# Runs only the tests that need one process.
check Node.js 800 "$@" node --allow-natives-syntax --expose-gc -e '
	for (const part of ["words", "objects", "workers", "scripts"])
		require("./node/" + part);
	require("./node/harness").runTests();'
finish
