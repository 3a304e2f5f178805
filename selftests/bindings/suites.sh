#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs CPython's tests of locks (for threads, tasks and processes) and of queues with memwait's
# objects.
cd "$(dirname "$0")/python" || exit 1
exec python3 -B suites.py
