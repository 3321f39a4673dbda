"""Tables of text for a terminal, and the same as HTML for a notebook."""

import html
from collections.abc import Iterable, Sequence

Cells = Sequence[Sequence[str]]  # Rows of cells, the header first.


def text_table(cells: Cells) -> str:
    """Return a table as lines of text, its first column to the left.

    >>> print(text_table([("class", "F1"), ("a", "0.50")]))
    class    F1
    a      0.50
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join(rows)


def html_table(caption: str, cells: Cells) -> str:
    """Return a table as HTML; whatever it holds is shown as text."""
    head, *body = cells
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead>{_row(head, 'th')}</thead>"
        f"<tbody>{''.join(_row(row, 'td') for row in body)}</tbody></table>"
    )


def html_lines(lines: Iterable[str]) -> str:
    """Return paragraphs of HTML, one per line."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)


class Tabular:
    """Base class of objects that are shown as a table."""

    def _caption(self) -> str:
        raise NotImplementedError

    def _cells(self) -> Cells:
        raise NotImplementedError

    def _remarks(self) -> str:
        return ""

    def __repr__(self) -> str:
        lines = [self._caption(), text_table(self._cells()), self._remarks()]
        return "\n".join(line for line in lines if line)

    def _repr_html_(self) -> str:
        table = html_table(self._caption(), self._cells())
        return table + html_lines([self._remarks()])


def _row(cells: Iterable[str], tag: str) -> str:
    inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"
