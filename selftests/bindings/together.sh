#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Processes in five languages take turns at a mutex and send through a channel. If one of them cannot start, all exit.
cd "$(dirname "$0")" || exit 1
# shellcheck source=selftests/bindings/tap
. ./tap
together=${MEMWAIT_TOGETHER:-userlib/together/together.sh}
check "a thread in C, a coroutine in C++, a task in Python, promises in Node and a future in Rust" 600 "$together"

# This node fails immediately, as if its package were missing.
elsewhere=$(mktemp -d)
printf '#!/bin/sh\nexit 1\n' >"$elsewhere/node"
chmod 755 "$elsewhere/node"
capture 200 env "PATH=$elsewhere:$PATH" "$together" "$elsewhere/file"
sed 's/^/# /' /tmp/tap.out
# Killed processes may not have exited yet.
limit=$((600 * ${MEMWAIT_SLOWNESS:-1}))
while grep -qsF "$elsewhere/file" /proc/[0-9]*/cmdline && [ $limit -gt 0 ]; do
	sleep 0.1
	limit=$((limit - 1))
done
if [ $status -ne 1 ]; then
	status="$status instead of 1"
elif grep -lsF "$elsewhere/file" /proc/[0-9]*/cmdline; then
	status="failed, a process is left"
elif [ "$(ls "$elsewhere")" != node ]; then
	status="failed, a file is left"
else
	status=0
fi
point "$status" "if one process fails, the others exit"
rm -rf "$elsewhere"
finish
