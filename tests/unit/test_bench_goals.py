"""A benchmark names each goal that was missed, and its exit code says so."""

from __future__ import annotations

import math

import pytest

from bench.harness import Row, conclude


def test_missed_goals_are_named_and_are_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row("a maximum", 5, "s", goal=4),
        Row("a ratio", 0.4, "x", goal=0.5, at_least=True),
        Row("another ratio", 0.6, "x", goal=0.5, at_least=True),
        Row("nothing measured", math.nan, "s", goal=4),
        Row("a ratio of nothing", math.nan, "x", goal=0.5, at_least=True),
        Row("no goal", 9, "s"),
    ]
    assert conclude(rows) == 1
    said = capsys.readouterr().out
    assert [line.split(":")[1].split("  ")[0].strip() for line in said.splitlines() if line.startswith("missed:")] == [
        *("a maximum", "a ratio", "nothing measured", "a ratio of nothing")
    ]
    assert said.endswith("4 of 5 goals missed\n")
    assert "≥ 0.5 **missed**" in rows[1].markdown()
    assert ">= 0.5" in str(rows[2])


def test_no_goal_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude([Row("a maximum", 4, "s", goal=4), Row("no goal", 9, "s")]) == 0
    assert capsys.readouterr().out == "all 1 goals met\n"
    assert conclude([Row("no goal", 9, "s")]) == 0
    assert "met" not in capsys.readouterr().out, "it says nothing about goals that there are not"
