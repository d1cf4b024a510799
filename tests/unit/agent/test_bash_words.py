"""Steps in words of people."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.event_mapper import make_step
from agent.core.tool import ToolTraits
from agent.settings.subagents import SubagentSettings
from agent.subagents.task import make_task_tool
from agent.tools import bash, grep, ls, propose_skill, read_file, run_skill, write_file
from agent.tools.bash import describe_command


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("pytest -q tests", "Running pytest"),
        ("cd /mnt/user-data/workspace && python -m pytest -x", "Running pytest"),
        ("pip install --quiet 'pandas>=2' numpy", "Installing pandas, numpy"),
        ("python3 -m pip install pandas==2.2", "Installing pandas"),
        ("sudo apt-get install -y ffmpeg && ffmpeg -i a.mov b.mp4", "Installing ffmpeg"),
        ("pip install -r requirements.txt", "Installing packages"),
        ("npm install a b c d", "Installing packages"),
        ("python plot.py --all", "Running plot.py"),
        ("python3 - <<'EOF'\nimport os\nEOF", "Running Python code"),
        ("python -c 'print(1)'", "Running Python code"),
        ("FOO=1 timeout 60 make test", "Running make test"),
        ("git -C repo log", "Running git repo"),
        ("/usr/bin/env bash x.sh", "Running bash"),
        ("# look\nls -la | head", "Running ls"),
        ("$(which x) y", "Running a command"),
        ('for second in $(seq 60); do echo "$second"; sleep 1; done', "Running a shell script"),
        ("cd x && while true; do date; done", "Running a shell script"),
        ("(cd x; make)", "Running a shell script"),
        ("", "Running a command"),
        ("cd /tmp", "Running cd"),
        ("timeout 5", "Running a command"),
        ("python", "Running Python code"),
        ("python -m", "Running Python code"),
    ],
)
def test_a_command_is_described_by_its_first_program(command: str, words: str) -> None:
    assert describe_command({"command": command}) == words


def test_each_tool_says_what_it_does_and_the_raw_call_is_the_detail() -> None:
    made = {"bash": bash.bash, "read_file": read_file.read_file, "ls": ls.ls}
    made |= {"grep": grep.grep, "write_file": write_file.write_file}
    made |= {"run_skill": run_skill.run_skill, "propose_skill": propose_skill.propose_skill}
    made |= {"task": make_task_tool(SubagentSettings().all_kinds())}
    traits = {name: tool.traits for name, tool in made.items()}
    calls: list[tuple[str, dict[str, Any], str, str]] = [
        (
            "read_file",
            {"path": "/mnt/user-data/uploads/report.pdf"},
            "Reading report.pdf",
            "read_file: uploads/report.pdf",
        ),
        ("write_file", {"path": "/mnt/a.txt", "content": "x"}, "Writing a.txt", "write_file: a.txt"),
        ("ls", {}, "Listing workspace", "ls"),
        ("ls", {"path": "/"}, "Listing /", "ls: /"),
        ("grep", {"pattern": "TODO {x}"}, "Searching for TODO {x}", "grep: TODO {x}"),
        ("grep", {}, "Searching for", "grep"),
        ("bash", {"command": "pytest  -q"}, "Running pytest", "bash: pytest -q"),
        ("bash", {"command": None}, "Running a command", "bash"),
        ("run_skill", {"name": "chart", "input": {"path": "x"}}, "Running the skill chart", "run_skill: chart"),
        ("propose_skill", {"name": "chart", "files": []}, "Proposing the skill chart", "propose_skill: chart"),
        ("task", {"description": "dig", "prompt": "x", "kind": "bash"}, "Task: dig", "bash"),
        ("create_issue", {"title": "It broke"}, "Using create issue", "create_issue: It broke"),
    ]
    for name, args, title, detail in calls:
        step = make_step("1", {"name": name, "args": args, "id": "1"}, traits)
        assert (step.title, step.detail) == (title, detail)


def test_a_title_and_a_detail_are_short() -> None:
    step = make_step("1", {"name": "x", "args": {"query": "y" * 9000}, "id": "1"}, {"x": ToolTraits()})
    assert len(step.detail) < 250
    step = make_step("1", {"name": "x" * 9000, "args": {}, "id": "1"}, {})
    assert len(step.title) == 80
