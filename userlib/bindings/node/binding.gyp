# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
# For npm, which builds the package against an installed libmemwait.
{
  "targets": [{
    "target_name": "memwait",
    "sources": ["memwait.c"],
    "cflags": ["<!@(pkg-config --cflags memwait)", "-std=gnu11", "-Wall", "-Wextra"],
    "libraries": ["<!@(pkg-config --libs memwait)", "-lm"],
    "ldflags": ["-Wl,-z,nodelete"],
  }]
}
