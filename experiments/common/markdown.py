"""Markdown of the reports: tables, and conversion to a self-contained HTML page."""

import html
from collections.abc import Sequence

from markdown_it import MarkdownIt

# Without raw HTML, and without links and pictures, which names have no use for.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_PARSER.disable(["link", "image", "autolink", "reference"])

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left;
  font-variant-numeric: tabular-nums; }
th { border-bottom: 2px solid #888; }
img { max-width: 100%; display: block; margin: 1.5rem 0; }
code { background: #f3f3f3; padding: .1rem .3rem; }
"""


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True
) -> str:
    """Return a table in Markdown; numbers in all columns but the first, or text."""
    form = ["---", *["---:" if numbers else "---"] * (len(header) - 1)]
    lines = [[_cell(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, form)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Return text that stays within its cell."""
    return " ".join(text.replace("|", "\\|").split())


def page(title: str, main: str) -> str:
    """Return a whole HTML page around some HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{main}\n</body></html>\n"
    )


def to_html(lines: Sequence[str]) -> str:
    """Convert Markdown to HTML; HTML in it is shown as text."""
    return _PARSER.render("\n".join(lines))
