"""No text that somebody writes, or a model, keeps the event loop busy for longer than its length explains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.adversarial_texts import WORK

GROUPS = [list(WORK)[0::3], list(WORK)[1::3], list(WORK)[2::3]]


@pytest.mark.parametrize("names", GROUPS, ids=["one", "two", "three"])
def test_no_work_on_a_text_is_quadratic(names: list[str]) -> None:
    """The limit is one of processor time in a process of its own: a busy machine does not come nearer to it."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.adversarial_texts", *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, f"{run.stdout.splitlines()[-1:]} was given up: {run.stderr[-2000:]}"
    assert run.stdout.endswith("done\n")
