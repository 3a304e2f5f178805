# SPDX-License-Identifier: GPL-2.0-only
"""A Sphinx extension that reads manual pages (by mandoc), declarations of TypeScript and C++, and
programs. It also converts the links of READMEs, links names to their pages, and formats doc
strings, which are plain text."""
import html
import os
import pathlib
import re
import subprocess
import textwrap

from docutils import nodes
from sphinx import addnodes
from sphinx.domains import Domain, ObjType
from sphinx.parsers import Parser
from sphinx.util.docutils import SphinxDirective
from sphinx.util.logging import getLogger

logger = getLogger(__name__)
TOP = pathlib.Path(__file__).parent.parent
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".py": "python", ".js": "javascript",
             ".rs": "rust"}
MANUAL = [f".{section}" for section in range(1, 10)]

# The manual page of each function
functions = {}
# The same, and the manual page of each page's own name
names = {}
for path in sorted((TOP / "userlib/man").iterdir()):
    names[path.stem] = f"userlib/man/{path.stem}"
    for name in re.findall(r"^\.Nm (\w+)", path.read_text().split(".Sh ", 2)[1], re.M):
        names.setdefault(name, names[path.stem])
        if path.suffix == ".3":
            functions[name] = path
# The page of each program, by the name of its file
programs = {path.name: str(path.relative_to(TOP).with_suffix(""))
            for path in TOP.glob("userlib/**/examples/*.*") if path.suffix in LANGUAGES}


def title_of(path):
    """Returns the title of a page, and the line that describes it."""
    text = path.read_text()
    if path.suffix in MANUAL:
        return f"{path.stem}({path.suffix[1:]})", re.search(r"^\.Nd (.*)", text, re.M).group(1)
    text = text.split("SPDX-License-Identifier", 1)[1]
    comment = re.search(r'(?://!|/\*|"""|^// )(.*?)(?:\*/|"""|\n//!?\n|\n(?! \*|//))', text,
                        re.S | re.M).group(1)
    text = re.sub(r"\s*\n(?: \*|//!?)?\s*", " ", comment).strip()
    return path.name, re.split(r"(?<=\.) ", text)[0]


def literal(text, language):
    block = nodes.literal_block(text, text, language=language)
    block["force"] = True
    return block


def section(parent, title, name):
    node = nodes.section(ids=[name], names=[title])
    node += nodes.title(title, title)
    parent += node
    return node


class SourceParser(Parser):
    def path(self):
        return pathlib.Path(self.env.doc2path(self.env.docname))


class Program(SourceParser):
    supported = ("program",)

    def parse(self, inputstring, document):
        path = self.path()
        node = section(document, path.name, "program")
        text = re.sub(r"^.*SPDX-License-Identifier.*\n", "", inputstring, count=1, flags=re.M)
        where = str(path.relative_to(TOP))
        node += nodes.paragraph("", "", nodes.literal(where, where))
        node += literal(text.strip("\n"), LANGUAGES[path.suffix])


def typescript(text):
    """Yields the comment, the declaration and the title of each exported name. The lines of a
    declaration after the first are indented, except for the brace at its end."""
    item = r"(?:^/\*\*((?:(?!\*/)[^/]|/)*)\*/\n)?^((?:export|declare) (?:declare )?" \
           r"(class|interface|type|function|const) (\w+).*\n(?:(?:\t.*|}.*)?\n)*?)(?=\S|\n\S|\Z)"
    for comment, code, kind, name in re.findall(item, text, re.M):
        yield comment, code, f"{name}()" if kind == "function" else f"{kind} {name}"


def cplusplus(text):
    """Yields the same for the public names of C++, without the bodies of functions. An alias has
    the title of the class before it."""
    text = text[text.index("namespace memwait {"):]
    # From namespace detail, include only the base classes of public classes.
    bases = "|".join(re.findall(r": public detail::(\w+)", text))
    details = r"^namespace detail \{\n.*?^\} /\* namespace detail \*/\n"
    base = r"(?:^/\*(?:(?!\*/).)*\*/\n)?^template <[^\n]*>\nclass " \
           rf"(?:{bases})\b[^\n;]*\{{\n.*?^\}};\n"
    text = re.sub(details, lambda match: "".join(re.findall(base, match[0], re.M | re.S)), text,
                  flags=re.M | re.S)
    text = re.sub(r"^(private|protected):\n.*?(?=^\};|^public:)", "", text, flags=re.M | re.S)
    text = re.sub(r"\n(\t?)\{\n(.*?\n)??\1\}(?=\n)", ";", text, flags=re.S)
    text = re.sub(r"\)( noexcept)?\s+: [^;]*;", r")\1;", text)
    item = r"(?:^/\*((?:(?!\*/).)*)\*/\n)?^((?:template <[^\n]*>\n)*" \
           r"(?:(?:class|struct|enum)\b[^\n;]*\{\n.*?^\};|[a-z][^#{}]*?;))$"
    title = None
    for comment, code in re.findall(item, text, re.M | re.S):
        head = re.sub(r"^template.*\n", "", code, flags=re.M)
        kind = re.match(r"(?:class|struct|enum)(?: class)? (?:\[\[\w+\]\] )?(\w+)", head)
        if kind and head.endswith(";") and "{" not in head:
            continue
        if kind:
            title = kind.group().replace("[[nodiscard]] ", "")
        elif not head.startswith("using "):
            name = re.search(r"([\w:]+) ?([(=;])", head)
            title = name[1] + "()" * (name[2] == "(")
        if ":" not in title:
            yield comment, re.sub(r"\n+(\n\n|\n};)", r"\1", code), title


class Declarations(SourceParser):
    """Makes a section for each name: its comment, then its declarations."""
    supported = ("declarations",)

    def parse(self, inputstring, document):
        path = self.path()
        language, items = ("typescript", typescript) if path.suffix == ".ts" else ("cpp", cplusplus)
        top = section(document, "Reference: " + path.name, "declarations")
        last = None
        for comment, code, title in items(inputstring):
            if title != last:
                part = section(top, title, re.sub(r"\W+", "-", title))
                last = title
            comment = re.sub(r"\s*\n \*\s*", " ", comment).strip()
            if comment:
                part += nodes.paragraph(comment, comment)
            part += literal(code.strip("\n"), language)


class Manual(SourceParser):
    supported = ("mdoc",)

    def parse(self, inputstring, document):
        path = self.path()
        page = subprocess.run(["mandoc", "-Thtml", "-Wwarning", "-Ofragment,man=%N.%S", path],
                              text=True, stdout=subprocess.PIPE, check=True).stdout
        page = re.sub(r'href="([\w.-]+)\.(\d)"', self.link, page)
        # A function is marked in the synopsis. mandoc marks some elsewhere.
        for name in functions:
            if functions[name] == path:
                page = page.replace(f' id="{name}"', "")
                page = page.replace(f'"Fn">{name}<', f'"Fn" id="{name}">{name}<', 1)
        name, what = title_of(path)
        stack = [section(document, f"{name}: {what}", "manual")]
        # The search finds the page first if its subject is entered: "mutex", "libmemwait".
        subject = path.stem.removeprefix("memwait_")
        stack[0] += addnodes.index(entries=[("single", subject, "manual", "main", None)])
        begin = r'<section class="S[hs]">\s*<h\d[^>]*id="([^"]*)"[^>]*>(.*?)</h\d>'
        page = page[page.index("<section"):page.rindex("</section>") + len("</section>")]
        for text, place, title in re.findall(rf"(.*?)(?:{begin}|</section>)", page, re.S):
            if text.strip():
                stack[-1] += nodes.raw("", f'<div class="mdoc">{text}</div>', format="html")
            if place:
                title = " ".join(html.unescape(re.sub("<.*?>", "", title)).split())
                stack.append(section(stack[-1], title, place))
            else:
                stack.pop()

    def link(self, match):
        name, number = match.groups()
        if name in names:
            return f'href="{os.path.basename(names[name])}.html"'
        return f'href="https://manpages.debian.org/{name}.{number}"'


class Pages(SphinxDirective):
    """pages GLOB: a list of the pages that match, with their descriptions. They become subpages."""
    required_arguments = 1

    def run(self):
        lines = []
        entries = []
        for path in sorted(TOP.glob(self.arguments[0])):
            page = "/" + str(path.relative_to(TOP).with_suffix(""))
            if path.suffix not in [*LANGUAGES, *MANUAL] or page[1:] not in self.env.found_docs:
                continue
            title, what = title_of(path)
            entries.append(f"   {title} <{page}>")
            what = re.sub(r"([\\`*_|])", r"\\\1", what)
            lines += [f":doc:`{title} <{page}>`", f"    {what}"]
        return self.parse_text_to_nodes("\n".join(
            [".. toctree::", "   :hidden:", "", *entries, "", *lines, ""]))


class Functions(SphinxDirective):
    """functions: a table of all functions, with their manual pages."""

    def run(self):
        lines = [".. list-table::", "   :header-rows: 1", "",
                 "   * - Function", "     - Manual page"]
        for name, path in sorted(functions.items()):
            page = os.path.relpath(names[path.stem], os.path.dirname(self.env.docname))
            title, what = title_of(path)
            lines += [f"   * - `{name}() <{page}.html#{name}>`__",
                      f"     - :doc:`{title} </{names[path.stem]}>`: {what}"]
        return self.parse_text_to_nodes("\n".join(lines))


class FunctionDomain(Domain):
    """The functions, for the search."""
    name = "function"
    object_types = {"function": ObjType("function")}

    def get_objects(self):
        for name, path in functions.items():
            yield name, name, "function", names[path.stem], name, 1

    def merge_domaindata(self, docnames, otherdata):
        pass

    def resolve_any_xref(self, *_):
        return []


def finish(app, doctree):
    """Recognises sessions of a shell, and warns of images that a blind reader cannot use. Makes the
    search find each entry of the troubleshooting page by its error number and by its message."""
    for node in doctree.findall(nodes.literal_block):
        if node.get("language", "none") == "none" and re.match(r"[$#] ", node.astext()):
            node["language"] = "console"
    for node in doctree.findall(nodes.image):
        if not node.get("alt"):
            logger.warning("this image has no alt text", location=node)
    if app.env.docname != "Documentation/troubleshooting":
        return
    for number, node in enumerate(doctree.findall(nodes.term)):
        place = f"entry-{number}"
        node["ids"].append(place)
        node += addnodes.index(entries=[("single", text, place, "main", None)
                                        for text in re.split(", |: ", node.astext())])


def describe(app, pagename, templatename, context, doctree):
    """Adds a description for search engines, unless the page has one: that of a source, or the
    first paragraph of a page."""
    if doctree is None or 'name="description"' in context["metatags"]:
        return
    path = pathlib.Path(app.env.doc2path(pagename))
    if path.suffix in (".rst", ".md"):
        text = next((node.astext() for node in doctree.findall(nodes.paragraph)
                     if isinstance(node.parent, nodes.section)), "")
    else:
        text = ": ".join(title_of(path))
    if not text:
        logger.warning("this page has no paragraph; describe it by a meta directive",
                       location=pagename)
    text = html.escape(textwrap.shorten(text, 160, placeholder=" …"))
    context["metatags"] += f'<meta name="description" content="{text}" />\n'


def readme_links(app, docname, source):
    """Makes links of READMEs lead to pages instead of files."""
    path = pathlib.Path(app.env.doc2path(docname))
    if path.suffix != ".md":
        return

    def link(match):
        target, place = match.groups()
        file = pathlib.Path(os.path.normpath(path.parent / target)).relative_to(TOP)
        if str(file) == "README.md":
            page, place = f"Documentation/{'install' if place == '#try-and-install' else 'index'}", None
        elif file.name == "examples":
            page = "Documentation/examples"
        elif (TOP / file / "README.md").exists():
            page = str(file / "README")
        else:
            page = re.sub(r"(\.d)?\.\w+$", "", str(file))
        page = os.path.relpath(page, os.path.dirname(docname))
        return f"]({page}.html{place or ''})"

    source[0] = re.sub(r"\]\((?!\w+:)([^)#]+)(#[^)]*)?\)", link, source[0])


def program(path):
    """The page of a program. The path may also name another file of the same name: None."""
    page = programs.get(os.path.basename(path), "")
    return page if page.endswith(os.path.splitext(path)[0].lstrip("./")) else None


def link_names(app, doctree, docname):
    """Links name(3) and name() to manual pages, and file names to programs, in all text. Makes a
    page's own links to programs lead to their pages."""
    for node in doctree.findall(nodes.reference):
        target = node.get("refuri", "")
        page = program(target)
        if page and target.startswith("../"):
            node["refuri"] = app.builder.get_relative_uri(docname, page)
    said = list(doctree.findall(lambda node: isinstance(node, (addnodes.manpage, nodes.literal))))
    for node in said:
        text = node.astext()
        page = program(text) or names.get(re.sub(r"\(\d?\)$", "", text))
        if not page and isinstance(node, addnodes.manpage):
            logger.warning("there is no %s", text, location=node)
        if page in (None, docname) or not re.search(r"[(.]", text) or \
           isinstance(node.parent, nodes.reference):
            continue
        reference = nodes.reference("", "", internal=True,
                                    refuri=app.builder.get_relative_uri(docname, page))
        node.replace_self(reference)
        reference += node


def plain_docstring(app, what, name, obj, options, lines):
    """Formats a doc string. In a paragraph that begins with "NAME: ", each line of that form
    describes an argument. Other indented lines are a program, and words between backticks code."""
    text, before, fields = [], "", False
    for line in lines:
        argument = re.match(r"([a-z_]+): ", line)
        if not before and line:
            if fields and not argument:
                text.append("")
            fields = bool(argument)
        escaped = re.sub(r"([\\*`|]|_\b)", r"\\\1", line)
        escaped = re.sub(r"\\`([^`\\]+)\\`", r"``\1``", escaped)
        if fields and argument:
            text.append(":param " + escaped)
        elif fields:
            text.append("    " + escaped.strip())
        elif line.startswith("    "):
            if not before:
                text += ["::", ""]
            text.append(line)
        else:
            text.append(escaped)
        before = line
    lines[:] = text


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    for suffix in LANGUAGES:
        app.add_source_suffix(suffix, "program")
    for suffix in ".d.ts", ".hpp":
        app.add_source_suffix(suffix, "declarations")
    for suffix in MANUAL:
        app.add_source_suffix(suffix, "mdoc")
    for parser in Program, Declarations, Manual:
        app.add_source_parser(parser)
    app.add_directive("pages", Pages)
    app.add_directive("functions", Functions)
    app.add_domain(FunctionDomain)
    app.connect("source-read", readme_links)
    app.connect("doctree-read", finish)
    app.connect("doctree-resolved", link_names)
    app.connect("html-page-context", describe)
    app.connect("autodoc-process-docstring", plain_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
