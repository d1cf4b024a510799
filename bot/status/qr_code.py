"""Draw a code that a telephone scans, for a terminal and for a page."""

from __future__ import annotations

import io
from itertools import groupby

WHITE_ON_BLACK, PLAIN = "\x1b[97;40m", "\x1b[0m"  # a light terminal would turn the code inside out
QUIET_ZONE = 4  # modules around a code (ISO/IEC 18004)


def draw_code(text: str) -> str:
    """Return a code as lines of half blocks, with its quiet zone."""
    import segno  # only a set-up draws codes

    lines = io.StringIO()
    code = segno.make(text, error="l", boost_error=False, micro=False)  # few modules: a terminal is small
    code.terminal(out=lines, compact=True)
    return "\n".join(f"{WHITE_ON_BLACK}{line}{PLAIN}" for line in lines.getvalue().splitlines())


def code_path(text: str) -> tuple[int, str]:
    """Return a code as the path of an SVG, with its quiet zone: the side of its square, and what is dark."""
    import segno

    code = segno.make(text, micro=False)
    runs: list[str] = []
    for y, row in enumerate(code.matrix_iter(border=QUIET_ZONE)):
        x = 0
        for is_dark, group in groupby(row, bool):
            width = len([*group])
            runs += [f"M{x} {y}h{width}v1h-{width}z"] if is_dark else []
            x += width
    return int(code.symbol_size(border=QUIET_ZONE)[0]), "".join(runs)
