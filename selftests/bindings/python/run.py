# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests of this directory in one process and prints a line for each. "run.py uvloop" runs
test_asyncio.py with uvloop's event loop.

A test that hangs ends the process, with a traceback.
"""

import asyncio
import faulthandler
import os
import sys
import unittest
import warnings

from common import limit


class Points(unittest.TestResult):
    """Prints "ok NAME" or "not ok NAME" for each test, after the traceback of a failure."""

    def startTest(self, test):
        super().startTest(test)
        self.failed = False
        self.note = ""

    def stopTest(self, test):
        super().stopTest(test)
        print(f"{'not ' if self.failed else ''}ok {test.id()}{self.note}", flush=True)

    def fail(self, text):
        self.failed = True
        print("# " + text.rstrip().replace("\n", "\n# "))

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(self.errors[-1][1])
        # The setup of a class or module failed: none of its tests has started.
        if not isinstance(test, unittest.TestCase):
            print("not ok", test.id(), flush=True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.fail(f"{subtest.id()}: {self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note = f" # SKIP {reason}"


# A spawned process imports this file.
if __name__ == "__main__":
    faulthandler.dump_traceback_later(limit(700), exit=True)
    warnings.simplefilter("default")
    warnings.simplefilter("ignore", DeprecationWarning)     # fork() in a process with threads
    pattern = "test_*.py"
    if sys.argv[1:] == ["uvloop"]:
        import uvloop
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        pattern = "test_asyncio.py"
    tests = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)), pattern)
    result = Points()
    tests.run(result)
    sys.exit(not result.wasSuccessful() or not result.testsRun)
