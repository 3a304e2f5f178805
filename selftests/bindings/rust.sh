#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the test program of the Rust binding, and its examples, whose exit status shows whether their
# results are as expected.
cd "$(dirname "$0")" || exit 1
# shellcheck source=selftests/bindings/tap
. ./tap
check_all tests 200 rust/objects
for program in rust/*.example; do
	check_example "$program" "${program%.example}.txt"
done
[ -e rust/tokio.example ] || point 0 "example tokio # SKIP it was built without the crate tokio"
finish
