"""Markdown of the reports: tables, and conversion to a self-contained HTML page."""

import html
import re
from collections.abc import Sequence

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
th { border-bottom: 2px solid #888; }
td.left { text-align: left; }
img { max-width: 100%; display: block; margin: 1.5rem 0; }
code { background: #f3f3f3; padding: .1rem .3rem; }
"""


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True
) -> str:
    """Return a table in Markdown; numbers in all columns but the first, or text."""
    form = ["---", *["---:" if numbers else "---"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, form, *rows))


def page(title: str, main: str) -> str:
    """Return a whole HTML page around some HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{main}\n</body></html>\n"
    )


def to_html(lines: Sequence[str]) -> str:
    """Convert headings, paragraphs, lists, tables, **bold** and `code`."""
    blocks: list[list[str]] = [[]]
    for line in "\n".join(lines).split("\n"):
        if line:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return "\n".join(_block(block) for block in blocks if block)


def _block(block: list[str]) -> str:
    heading = re.match(r"(#+) (.*)", block[0])
    if heading:
        level = len(heading[1])
        return f"<h{level}>{_inline(heading[2])}</h{level}>"
    if block[0].startswith("- "):
        items = "".join(f"<li>{_inline(line[2:])}</li>" for line in block)
        return f"<ul>{items}</ul>"
    if block[0].startswith("|"):
        return _table(block)
    return f"<p>{_inline(' '.join(block))}</p>"


def _table(block: list[str]) -> str:
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in block]
    left = [not form.endswith(":") for form in rows[1]]

    def row(cells: list[str], tag: str) -> str:
        made = (
            f"<{tag}{' class=left' if is_left else ''}>{_inline(cell)}</{tag}>"
            for cell, is_left in zip(cells, left, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row(cells, "td") for cells in rows[2:])
    return f"<table><thead>{row(rows[0], 'th')}</thead><tbody>{body}</tbody></table>"


def _inline(text: str) -> str:
    text = html.escape(text, quote=False)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
