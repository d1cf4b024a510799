"""Align the columns of a table as plain text, for platforms that show none."""

from __future__ import annotations

from wcwidth import wcswidth

MAX_ALIGNED_CELLS = 100  # width from which a table wraps on every screen, so that padding does not help


def align_table(rows: list[list[str]], max_cells: int | None = None) -> list[str]:
    """Return head, rule and body lines, padded by what a screen shows: a Chinese character takes two cells.

    A table that is wider than `max_cells` is not padded.
    """
    columns = max(map(len, rows), default=0)
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(_cell_width(row[column]) for row in rows) for column in range(columns)]
    if max_cells is not None and sum(widths) > max_cells:
        widths = [0] * columns
    head, *body = [
        " | ".join(cell + " " * (width - _cell_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [head, "-+-".join("-" * max(width, 1) for width in widths), *body]


def _cell_width(text: str) -> int:
    return max(wcswidth(text), 0)
