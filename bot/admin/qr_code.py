"""Draw a code that a telephone scans, for a terminal."""

from __future__ import annotations

import io

WHITE_ON_BLACK, PLAIN = "\x1b[97;40m", "\x1b[0m"  # a light terminal would turn the code inside out


def draw_code(text: str) -> str:
    """Return a code as lines of half blocks, with its quiet zone."""
    import segno  # only a set-up draws codes

    lines = io.StringIO()
    code = segno.make(text, error="l", boost_error=False, micro=False)  # few modules: a terminal is small
    code.terminal(out=lines, compact=True)
    return "\n".join(f"{WHITE_ON_BLACK}{line}{PLAIN}" for line in lines.getvalue().splitlines())
