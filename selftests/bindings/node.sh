#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the Node.js binding, and the code of its README and its examples. All tests run
# in one process, because a start takes seconds in a guest, and in the processes that they start. If
# the package is not installed, MEMWAIT_NODE is a folder that contains it.
cd "$(dirname "$0")" || exit 1
if ! command -v node >/dev/null; then
	echo "1..0 # SKIP no Node.js"
	exit 4
fi
# The first option is for a test that detaches a buffer, and the second is for a test of finalizers.
exec timeout -k 5 $((850 * ${MEMWAIT_SLOWNESS:-1})) node --allow-natives-syntax --expose-gc node/all.js
