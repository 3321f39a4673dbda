"""Sphinx configuration of the documentation: `make docs`."""

import importlib.metadata
import pathlib
import re
import shutil
import sys

from docutils import nodes
from docutils.parsers.rst import Directive
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

HERE = pathlib.Path(__file__).resolve().parent
# This checkout, not an installed package.
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "_extensions")]

from locate import locate  # noqa: E402

import hopf_jax  # noqa: E402

project = "hopf_jax"
author = copyright = "the hopf_jax authors"
version = release = hopf_jax.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "examples",
    "notebooks",
    "kernel_pages",
]
exclude_patterns = ["_build", "measured"]
suppress_warnings = ["config.cache"]  # run_examples may be given on the command line
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # Messages and labels are quoted as they are.
default_role = "code"  # `name` in a docstring is code, as in Markdown.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # Fields of a dataclass are listed once.
html_theme = "furo"
html_title = "hopf_jax"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_extra_path = ["llms.txt"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b62a4",
        "color-brand-content": "#0b62a4",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cb6ff",
        "color-brand-content": "#6cb6ff",
    },
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
# Formulas need no network: one file of MathJax, with its glyphs as curves, is copied
# from a package into _static when the pages are built.
mathjax_path = "tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "local"}, "startup": {"typeset": True}}


def copy_mathjax(app, error):
    """Copy MathJax beside the pages."""
    if error is None and app.builder.format == "html":
        files = importlib.metadata.files("sphinx-mathjax-offline") or ()
        (found,) = [file for file in files if file.name == mathjax_path]
        shutil.copy(found.locate(), pathlib.Path(app.outdir) / "_static")


def copy_markdown(app, error):
    """Copy the pages as Markdown beside the HTML, where `llms.txt` leads to them."""
    if error is None and app.builder.format == "html":
        for name in app.env.found_docs:
            source, target = (pathlib.Path(app.env.doc2path(name)), app.outdir)
            if source.suffix == ".md":
                shutil.copy(source, pathlib.Path(target, name).with_suffix(".md"))


def as_plain_text(app, what, name, obj, options, lines):
    """Escape a docstring: text with `code`, **bold** and indented code blocks."""
    del app, what, name, obj, options
    found, block = [], False
    for before, line in zip(["", *lines], lines, strict=False):
        indented = line.startswith("    ")
        if indented and not before.strip() and not block and found:
            found += ["::", ""]
            block = True
        elif line.strip() and not indented:
            block = False
        if not block:
            pieces = re.split(r"(`[^`]*`)", line)
            pieces[::2] = [_SPECIAL.sub(r"\\\g<0>", piece) for piece in pieces[::2]]
            line = "".join(pieces)
        found.append(line)
    lines[:] = found


# A single * would be emphasis, a | a substitution, a trailing _ a reference.
_SPECIAL = re.compile(r"(?<!\*)\*(?!\*)|\||(?<=\w)_(?!\w)")


def src_role(role, rawtext, text, lineno, inliner, options=None, content=None):
    """Return the role {src}`name`: file:line, linked to that line."""
    del role, rawtext, lineno, options, content
    return [line_link(*locate(text), inliner.document.settings.env)], []


def line_link(path, line, env, text=None):
    """Return file:line, or another text, linked to the page of that file."""
    uri = env.app.builder.get_relative_uri(env.docname, source_page(path))
    literal = nodes.literal(text=text or f"{path}:{line}")
    return nodes.reference("", "", literal, refuri=f"{uri}#line-{line}")


def source_page(path):
    """Return the name of the page of a source file."""
    return "_source/" + path.with_suffix("").as_posix()


def source_pages(app):
    """Yield one page per source file, with an anchor on each line."""
    del app
    formatter = HtmlFormatter(linenos="inline", lineanchors="line", anchorlinenos=True)
    for package in ("hopf_jax", "experiments"):
        for path in sorted((HERE.parent / package).rglob("*.py")):
            name = path.relative_to(HERE.parent)
            body = highlight(path.read_text(), PythonLexer(), formatter)
            context = {"title": str(name), "body": f"<h1>{name}</h1>\n{body}"}
            yield source_page(name), context, "page.html"


class Table1(Directive):
    """The paper's Table 1, made from `MODELS`, with the line of each kernel."""

    def run(self):
        """Return the table node."""
        columns = (
            "model",
            "Φ",
            "F(A)",
            "Ψ",
            "α",
            "β",
            "W shared",
            "skips",
            "y",
            "line",
        )
        rows = []
        for name, kernel in hopf_jax.MODELS.items():
            path, line = locate(f"hopf_jax.kernels.table.MODELS[{name}]")
            rows.append(
                (
                    name,
                    ", ".join(kernel.phi) or "-",
                    kernel.aggregate.name if kernel.psi else "-",
                    ", ".join(kernel.psi) or "-",
                    gate(kernel.alpha) if kernel.phi else "-",
                    gate(kernel.beta) if kernel.psi else "-",
                    "yes" if kernel.shared_weights else "no",
                    f"from hop {kernel.skip_from}" if kernel.skip_from else "-",
                    "yes" if kernel.iterative else "no",
                    line_link(path, line, self.state.document.settings.env, str(line)),
                )
            )
        return [table(columns, rows)]


def gate(gate):
    """Return a gate as the paper writes it."""
    power = f"(D+I)^{gate.power:g}" if gate.power else ""
    learned = " (learned)" if gate.learned else ""
    shown = power if power and gate.scale == 1 else f"{gate.scale:g}{power}"
    return shown + learned


def table(columns, rows):
    """Return cells as a docutils table."""
    made = nodes.table(classes=["longtable"])
    group = nodes.tgroup(cols=len(columns))
    made += group
    group.extend(nodes.colspec(colwidth=1) for _ in columns)
    for kind, lines in ((nodes.thead, [columns]), (nodes.tbody, rows)):
        part = kind()
        group += part
        for line in lines:
            cells = nodes.row()
            part += cells
            cells.extend(
                nodes.entry("", nodes.paragraph("", "", text_or_node(cell)))
                for cell in line
            )
    return made


def text_or_node(cell):
    """Return the content of a cell as a node."""
    return nodes.Text(cell) if isinstance(cell, str) else cell


def setup(app):
    """Register the extensions of this file."""
    app.connect("autodoc-process-docstring", as_plain_text, priority=100)
    app.connect("html-collect-pages", source_pages)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", copy_markdown)
    app.add_role("src", src_role)
    app.add_directive("table1", Table1)
