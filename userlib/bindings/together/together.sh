#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
# Five languages at one mutex and one channel: a thread in C, a coroutine in C++, a task in Python, promises in Node
# and a future in Rust take turns, in five processes that have nothing in common but a file: together.sh [FILE]
file=${1:-/dev/shm/memwait-together.$$}
cd "$(dirname "$0")" || exit 1
trap 'rm -f "$file" "$file".??????' EXIT
# What starts slowly waits for the file, not for each other. One that fails ends the first, which waits for all.
when_there()
{
	until [ -e "$file" ]; do
		sleep 0.1
	done
	trap 'ended=yes' TERM
	"$@" "$file" &
	# shellcheck disable=SC2064
	trap "kill $!" TERM
	[ -z "$ended" ] || kill $!
	wait $! && return
	kill "$first" 2>/dev/null && cat >&2 <<EOT
$* has failed. Does it find the package memwait? PATH=venv/bin:\$PATH takes Python from a venv, and
NODE_PATH=.../node_modules says where Node's packages are.
EOT
	return 1
}
./first "$file" &
first=$!
pids='' ended=''
for program in ./second "python3 third.py" "node fourth.js" ./fifth; do
	# shellcheck disable=SC2086
	when_there $program &
	pids="$pids $!"
done
wait "$first"
status=$?
for pid in $pids; do
	# Without the first program the others wait for ever.
	[ $status -eq 0 ] || kill "$pid" 2>/dev/null
	wait "$pid" || status=1
done
exit $status
