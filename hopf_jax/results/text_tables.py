"""Tables of text, for a terminal and for a notebook."""

import html
from collections.abc import Iterable, Sequence

Cells = Sequence[Sequence[str]]  # the heading first


def text_table(caption: str, cells: Cells, remarks: str = "") -> str:
    """Columns of spaces, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([caption, *rows, *([remarks] if remarks else [])])


def html_table(caption: str, cells: Cells, remarks: str = "") -> str:
    """The same as HTML; what is in the cells is text, not markup."""
    head, *body = cells
    last = f"<p>{html.escape(remarks)}</p>" if remarks else ""
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead>{_row(head, 'th')}</thead>"
        f"<tbody>{''.join(_row(row, 'td') for row in body)}</tbody></table>{last}"
    )


def _row(cells: Iterable[str], tag: str) -> str:
    said = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{said}</tr>"
