#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The binding for Node, in one process and those that it starts: a start takes seconds in a guest. What its
# README and examples show runs, too. MEMWAIT_NODE: a folder with the package, if it is not installed.
cd "$(dirname "$0")" || exit 1
if ! command -v node >/dev/null; then
	echo "1..0 # SKIP no node"
	exit 4
fi
# The first is for a buffer that is detached, the second for finalizers.
exec timeout -k 5 $((850 * ${MEMWAIT_SLOWNESS:-1})) node --allow-natives-syntax --expose-gc node/all.js
