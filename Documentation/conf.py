# SPDX-License-Identifier: GPL-2.0-only
# What Sphinx is to know of these pages; see the script site.
import re

with open("../dkms.conf") as file:
    release = re.search(r'PACKAGE_VERSION="(.*)"', file.read()).group(1)

project = "memwait"
author = "memwait authors"
copyright = "memwait authors"
html_title = "memwait " + release
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "description": "ECMAScript's Atomics.wait, notify and waitAsync for every Linux process",
    "fixed_sidebar": True,
    "page_width": "1140px",
    # Narrow windows have no room for more.
    "body_min_width": "0",
    "body_max_width": "860px",
}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
# The manual pages are no .rst: they are there already.
html_extra_path = ["pages"]
manpages_url = "man/{page}.{section}.html"
exclude_patterns = ["pages"]
