#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the C++ binding under ThreadSanitizer. Threads run in parallel only in a guest
# with several CPUs. Rust is not tested: its standard library is not built for ThreadSanitizer, which
# therefore does not see the order that a Mutex or an Arc establishes.
cd "$(dirname "$0")" || exit 1
# shellcheck source=selftests/bindings/tap
. ./tap
export TSAN_OPTIONS="exitcode=66 die_after_fork=0"
for program in races/*; do
	[ ! -x "$program" ] || check_all "${program#races/}" 800 "$program"
done
finish
