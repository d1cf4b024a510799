"""A minute of the red team: whatever a hostile model, member, page, file, skill or server does, the rest holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redteam.calls import TOOLS, hostile_turns
from tests.redteam.strains import ANSWERS, PLATFORMS, strain_platform
from tests.support.costs import THOROUGH
from tests.support.engines import need_bubblewrap

SECONDS, MOST_SECONDS = 60 if THOROUGH else 20, 300
MOST_ANSWER_SECONDS = 60.0  # of a machine that runs other tests, too: nobody may be kept waiting for good
pytestmark = pytest.mark.slow


def test_equal_seeds_give_equal_calls_to_every_tool() -> None:
    turns = hostile_turns(7, 2_000)
    assert turns == hostile_turns(7, 2_000) != hostile_turns(8, 2_000)
    assert sum(turn.calls for turn in turns) >= 2_000
    called = [call.name for turn in turns for step in turn.steps for call in step.calls]
    assert min(called.count(tool) for tool in TOOLS) >= 20


@pytest.mark.parametrize("name", PLATFORMS if THOROUGH else ("telegram",))
async def test_answers_without_an_end_and_floods(tmp_path: Path, name: str) -> None:
    found = await strain_platform(tmp_path, name)
    assert len(found) > len(ANSWERS)
    assert [problem for each in found for problem in each.problems] == [], "the bench judges the two seconds"


def test_a_service_under_attack(tmp_path: Path) -> None:
    need_bubblewrap()
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.redteam", "--seconds", str(SECONDS), "--report", str(report)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=MOST_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    print(output.decode(errors="replace"))
    assert report.exists()
    found = json.loads(report.read_text())
    problems = [each for each in found["problems"] if each not in found["late"]]
    assert problems == []
    assert max(found["answers"]) < MOST_ANSWER_SECONDS, "the bench, on an idle machine, judges the two seconds"
    assert found["calls"] > 0
    assert len(found["answers"]) > 3
