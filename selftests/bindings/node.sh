#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests of the Node.js binding in one process, because a start takes seconds in a guest, and in processes that
# it starts; also the code of its README and its examples. MEMWAIT_NODE: a folder with the package, if not installed.
cd "$(dirname "$0")" || exit 1
if ! command -v node >/dev/null; then
	echo "1..0 # SKIP no Node.js"
	exit 4
fi
# The first option is for a test that detaches a buffer, the second for a test of finalizers.
exec timeout -k 5 $((850 * ${MEMWAIT_SLOWNESS:-1})) node --allow-natives-syntax --expose-gc node/all.js
