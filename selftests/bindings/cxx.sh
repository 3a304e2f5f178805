#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the test programs of the C++ binding, and its examples, whose exit status shows whether their
# results are as expected.
cd "$(dirname "$0")" || exit 1
# shellcheck source=selftests/bindings/tap
. ./tap
examples=${MEMWAIT_CXX_EXAMPLES:-userlib/cxx/examples}
for program in cxx/*; do
	if [ -f "$program" ] && [ -x "$program" ]; then
		check_all "${program#*/}" 300 "$program"
	fi
done
for program in "$examples"/*; do
	if [ -f "$program" ] && [ -x "$program" ]; then
		check_example "$program" "$program.txt"
	fi
done
finish
