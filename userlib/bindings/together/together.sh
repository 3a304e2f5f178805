#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
# Programs in five languages share one mutex and one channel: a thread in C, a coroutine in C++, a
# task in Python, promises in Node.js and a future in Rust take turns, in five processes that share
# only a file: together.sh [FILE]
file=${1:-/dev/shm/memwait-together.$$}
cd "$(dirname "$0")" || exit 1
trap 'rm -f "$file" "$file".??????' EXIT
# Runs a program as soon as the first program has created the file. If the program fails, ends the first program, which
# would wait for it.
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
$* has failed. Can it find the package memwait? PATH=venv/bin:\$PATH uses the Python of a venv, and
NODE_PATH=.../node_modules names the directory of Node.js packages.
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
	# Without the first program the others would wait forever.
	[ $status -eq 0 ] || kill "$pid" 2>/dev/null
	wait "$pid" || status=1
done
exit $status
