#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the C++ and Rust bindings under ThreadSanitizer. Threads run in parallel only in
# a guest with several CPUs.
cd "$(dirname "$0")" || exit 1
# shellcheck source=selftests/bindings/tap
. ./tap
export TSAN_OPTIONS="exitcode=66 die_after_fork=0 suppressions=$PWD/races.supp"
for program in races/*; do
	[ ! -x "$program" ] || check_all "${program#races/}" 800 "$program"
done
finish
