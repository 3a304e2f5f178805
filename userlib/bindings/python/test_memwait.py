# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Makes "python3 -m unittest" in this directory run the tests of the binding, which are in
selftests/. They need the device, and the extension that make has built here.
"""

import os
import unittest


def load_tests(loader, tests, pattern):
    here = os.path.dirname(os.path.abspath(__file__))
    directory = os.path.join(here, "../../../selftests/bindings/python")
    # Processes that the tests start import memwait as well.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    return unittest.TestLoader().discover(directory)
