# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests of this directory in one process. "run.py uvloop" runs test_asyncio.py with
uvloop's event loop.

A test that hangs ends the process, with a traceback.
"""

import asyncio
import faulthandler
import os
import sys
import unittest
import warnings

from common import limit

# A spawned process imports this file.
if __name__ == "__main__":
    faulthandler.dump_traceback_later(limit(700), exit=True)
    warnings.simplefilter("ignore", DeprecationWarning)     # fork() in a process with threads
    pattern = "test_*.py"
    if sys.argv[1:] == ["uvloop"]:
        import uvloop
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        pattern = "test_asyncio.py"
    tests = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)), pattern)
    durations = {"durations": 8} if sys.version_info >= (3, 12) else {}
    result = unittest.TextTestRunner(sys.stdout, verbosity=2, **durations).run(tests)
    sys.exit(not result.wasSuccessful() or not result.testsRun)
