# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests here, in one process. A test that hangs ends all, with a traceback."""

import faulthandler
import os
import sys
import unittest
import warnings

from common import limit

# A process that is spawned imports this.
if __name__ == "__main__":
    faulthandler.dump_traceback_later(limit(700), exit=True)
    warnings.simplefilter("ignore", DeprecationWarning)     # fork() beside threads
    tests = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)))
    durations = {"durations": 8} if sys.version_info >= (3, 12) else {}
    result = unittest.TextTestRunner(sys.stdout, verbosity=2, **durations).run(tests)
    sys.exit(not result.wasSuccessful() or not result.testsRun)
