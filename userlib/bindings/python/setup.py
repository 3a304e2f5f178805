# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""For pip: builds the extension against an installed libmemwait, once for Python 3.11 and later."""

import shlex
import subprocess

from setuptools import Extension, setup


def pkg_config(option):
    return shlex.split(subprocess.check_output(["pkg-config", option, "memwait"], text=True))


setup(
    ext_modules=[
        Extension(
            "memwait._memwait",
            ["_memwait.c"],
            py_limited_api=True,
            extra_compile_args=[
                "-std=gnu11", "-D_GNU_SOURCE", "-pthread", "-fvisibility=hidden",
                *pkg_config("--cflags"),
            ],
            extra_link_args=pkg_config("--libs"),
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
