"""Tables of text for a terminal, and the same as HTML for a notebook."""

import html
from collections.abc import Iterable, Sequence

Cells = Sequence[Sequence[str]]  # Rows of cells, the header first.


class Tabular:
    """Base class of objects that are shown as a table."""

    def _caption(self) -> str:
        raise NotImplementedError

    def _cells(self) -> Cells:
        raise NotImplementedError

    def _remarks(self) -> str:
        return ""

    def __repr__(self) -> str:
        cells, remarks = self._cells(), self._remarks()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rows = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self._caption(), *rows, *([remarks] if remarks else [])])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        remarks = html.escape(self._remarks())
        return (
            f"<table><caption>{html.escape(self._caption())}</caption>"
            f"<thead>{_row(head, 'th')}</thead>"
            f"<tbody>{''.join(_row(row, 'td') for row in body)}</tbody></table>"
            + (f"<p>{remarks}</p>" if remarks else "")
        )


def _row(cells: Iterable[str], tag: str) -> str:
    inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"
