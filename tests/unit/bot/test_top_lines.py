"""`fawn top` says what a turn does on a narrow terminal, too."""

from __future__ import annotations

from typing import Any

import pytest

from bot.cli.top import render_top

REPORT: dict[str, Any] = {
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


@pytest.mark.parametrize(("width", "shown"), [(60, 8), (100, 8), (120, 24)])
def test_where_services_share_a_database_each_line_names_its_host(width: int, shown: int) -> None:
    hosts = ("web-1-01234567", "web-1-fedcba98")
    turns = [turn | {"host": host} for turn, host in zip(REPORT["turns"], hosts, strict=True)]
    head, _down, _empty, titles, *lines = render_top({**REPORT, "turns": turns, "turns_live": 1}, width)
    assert "turns 2" in head, "the turns of all, not those of one process"
    assert "HOST" in titles
    assert all(max(map(len, (titles, *lines))) <= width for line in lines)
    assert [f" {host[-shown:]}  " in line for host, line in zip(hosts, lines, strict=True)] == [True, True]
    assert "HOST" not in render_top(REPORT, width)[3]
