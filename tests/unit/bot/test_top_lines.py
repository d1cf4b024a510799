"""`fawn top` says what a turn does on a narrow terminal, too."""

from __future__ import annotations

import pytest

from bot.cli.top import render_top

REPORT = {
    **dict.fromkeys(("turns_live", "queue_conversations", "outbox_rows", "dead_letters", "jobs_waiting"), 1),
    "queue_age_seconds": 2.0,
    "sandboxes_in_use": 1,
    "channels": {"telegram": True, "slack": False},
    "turns": [
        {
            "run": 7,
            "seconds": 65.0,
            "calls": 3,
            "tokens": 12_345,
            "steps": 2,
            "thread": "telegram/bot/42/",
            "doing": name,
        }
        for name in ("Reading\n\x1b[31mred", "x" * 500)
    ],
}


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_a_line_fits_and_names_run_thread_and_work(width: int) -> None:
    lines = render_top(REPORT, width)
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)
    assert all("\n" not in line for line in lines)
    _head, down, _empty, titles, first, _second = lines
    assert "slack" in down or width < 30
    assert ("TOKENS" in titles, "12,345" in first) == (width >= 80,) * 2
    assert "telegram"[: max(4, width // 4)] in first
    if width >= 60:
        assert "Readin" in first
