# SPDX-License-Identifier: GPL-2.0-only
# The configuration of Sphinx; see the script site. The sources are files anywhere in the tree:
# pages, manual pages, READMEs, examples, and the files from which references are made.
import pathlib
import re
import sys

import furo

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))

release = re.search(r'PACKAGE_VERSION="(.*)"', (here.parent / "dkms.conf").read_text())[1]
project = "memwait"
author = "memwait authors"
copyright = author
html_title = "memwait " + release

extensions = ["sources", "sphinx_copybutton", "myst_parser"]
root_doc = "Documentation/index"
include_patterns = [
    "Documentation/*.rst", "*.md", "userlib/man/*", "userlib/memwait.h",
    "userlib/memwait/pthread.h", "userlib/examples/*.c", "userlib/bindings/*/README.md",
    "userlib/bindings/cxx/memwait.hpp", "userlib/bindings/cxx/memwait/task.hpp",
    "userlib/bindings/node/index.d.ts", "userlib/bindings/**/examples/*",
    "userlib/bindings/together/*", "userlib/bindings/rust/tokio/src/main.rs",
]
# index.rst takes the place of README.md; readme.rs is generated from a README.
exclude_patterns = ["README.md", "**/readme.rs"]

# Links of READMEs are for the repository: sources.py converts them, and check_links.py checks them.
myst_all_links_external = True
myst_heading_anchors = 3

autodoc_member_order = "groupwise"
python_use_unqualified_type_names = True

# A block without a language is text; sources.py recognises sessions of a shell by their prompt.
highlight_language = "none"
# The colours of furo's own style are too pale.
pygments_style = "default"
pygments_dark_style = "github-dark"

html_theme = "furo"
# Debian's furo has its dark colours only for readers who choose them with the button of a page. The
# pages set the colours of this option also for readers whose system is dark.
theme = (pathlib.Path(furo.__file__).parent / "theme/furo/static/styles/furo.css").read_text()
dark = re.search(r'body\[data-theme="?dark"?\]\s*\{([^}]*--color-background[^}]*)', theme)[1]
html_theme_options = {"dark_css_variables": dict(re.findall(r"--([\w-]+):\s*([^;]+)", dark))}
html_favicon = "favicon.svg"
html_search_scorer = str(here / "scorer.js")
html_copy_source = False
html_show_sphinx = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
# Copies commands without the prompt of the shell.
copybutton_prompt_text = r"\$ |# "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
