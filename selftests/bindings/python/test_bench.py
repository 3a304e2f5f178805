# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark counts right."""

import unittest

import bench


class Bench(unittest.TestCase):
    def test_contenders_count_right(self):
        bench.main(0)
