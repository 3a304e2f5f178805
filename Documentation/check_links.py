#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Prints dead links of a site: check_links.py DIRECTORY. A link is dead if its file or its anchor
does not exist, or if it leads to another site for a manual page that this site has."""
import html.parser
import os
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = set(), set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)
            elif tag == "meta" and name == "content" and "url=" in value:
                self.links.add(value.split("url=", 1)[1])


def main(top):
    """Returns the number of dead links."""
    pages = {}
    for directory, _, names in os.walk(top):
        for name in names:
            if name.endswith(".html"):
                path = os.path.normpath(os.path.join(directory, name))
                pages[path] = Page(path)
    directory = os.path.normpath(os.path.join(top, "userlib/man"))
    manual = {os.path.basename(path).removesuffix(".html") for path in pages
              if os.path.dirname(path) == directory}
    if not manual:
        print(f"{top}: no manual pages")
        return 1
    dead = 0
    for path, page in sorted(pages.items()):
        # rustdoc checks its own links, some of which are made by scripts.
        if "rust/doc" in path:
            continue
        for link in sorted(page.links):
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                # On other sites a manual page is NAME.SECTION.
                name = os.path.basename(url.path).removesuffix(".html").rsplit(".", 1)[0]
                if name in manual:
                    print(f"{os.path.relpath(path, top)}: {link} leads away from {name}")
                    dead += 1
                continue
            target = path
            if url.path:
                target = os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path))
                target = os.path.normpath(target)
            place = urllib.parse.unquote(url.fragment)
            if not os.path.exists(target) or \
               (place and target in pages and place not in pages[target].places):
                print(f"{os.path.relpath(path, top)}: {link} leads nowhere")
                dead += 1
    return dead


sys.exit(1 if main(sys.argv[1]) else 0)
