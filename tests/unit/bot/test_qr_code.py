"""Codes to scan: what the terminal shows are the modules of the code, light on dark."""

from __future__ import annotations

import segno

from bot.status.qr_code import PLAIN, WHITE_ON_BLACK, draw_code

LINK = "https://liteapp.weixin.qq.com/q/0123456789abcdef"
HALVES = {"█": (0, 0), " ": (1, 1), "▀": (0, 1), "▄": (1, 0)}  # of a character: light is 0


def test_the_terminal_shows_the_modules_of_the_code() -> None:
    lines = draw_code(LINK).split("\n")
    assert all(line.startswith(WHITE_ON_BLACK) and line.endswith(PLAIN) for line in lines)
    cells = [line.removeprefix(WHITE_ON_BLACK).removesuffix(PLAIN) for line in lines]
    shown = [[HALVES[cell][half] for cell in row] for row in cells for half in (0, 1)]
    made = segno.make(LINK, error="l", boost_error=False, micro=False)
    wanted = [list(row) for row in made.matrix_iter(border=4)]
    assert [[bool(each) for each in row] for row in shown[: len(wanted)]] == [
        [bool(each) for each in row] for row in wanted
    ]
    assert len(lines) <= 24, "it fits into a terminal"
