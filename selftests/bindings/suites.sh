#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# CPython's tests of what memwait has objects like, with memwait's: of locks in threads, tasks and processes, of queues.
cd "$(dirname "$0")/python" || exit 1
exec python3 -B suites.py
