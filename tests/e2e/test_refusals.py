"""What `fawn run` refuses, `fawn check`, `fawn ask` and `fawn reload` refuse, too, with the same sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Start
from tests.support.forked_services import run_forked

FILES_ONLY = {"provider": "none"}
POLICY = "agent.policies.outcomes:ToolLogPolicy"
FAULTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # a configuration with all that one step refuses
    "what the file says": (
        {
            "agents": [{"name": "poet"}, {"name": "poet"}],
            "budgets": [{"scope": "agent", "which": "pote", "tokens": 1}],
            "push": {"targets": [{"name": "a", "url": "https://a.example", "people": ["alice"]}]},
            "skills": {"folders": ["nowhere"]},
            "subagents": {"kinds": [{"name": "a", "model": "gtp"}]},
            "team": {"roles": [{"name": "a"}, {"name": "a"}], "approvals": [{"roles": ["operator"]}]},
        },
        (
            "agents[1].name: another entry has the same name",
            "budgets[0].which: no agent has this name",
            "is not the address of a person",
            "the folder does not exist",
            "no model has this name",
            "team.roles[1].name: another entry has the same name",
            "protects nothing",
        ),
    ),
    "what is built of it": (
        {
            "agents": [{"name": "a", "tools": ["reed_*"]}],
            "permissions": {"deny": ["shell(rm *)"]},
            "rate_limits": [{"scope": "tool", "which": "websearch"}],
            "skills": {"allow": ["charts-of-otters"]},
            "subagents": {"kinds": [{"name": "a", "tools": ["reed_file"]}]},
            "team": {"roles": [{"name": "a", "ask": ["wite_file"]}], "approvals": [{"calls": ["bsh(make)"]}]},
        },
        (
            "no tool has this name",
            "'shell(rm *)' never matches",
            "did you mean 'web_search'?",
            "no installed skill has this name",
            "did you mean 'read_file'?",
            "did you mean 'write_file'?",
            "'bsh(make)' never matches",
        ),
    ),
    "an agent with the name of another": ({"agents": [{"name": "default"}]}, ("the name 'default' is taken",)),
    "a policy that is missing": (
        {"policies": [{"use": "no_such_module:Policy"}]},
        ("there is no module 'no_such_module'",),
    ),
    "a policy without its place": ({"policies": [{"use": POLICY, "after": "legder"}]}, ("did you mean 'ledger'?",)),
}


def write(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump({"config_version": 1, "sandbox": FILES_ONLY, **settings}))


async def fawn(folder: Path, *words: str) -> tuple[int, str]:
    """Run a command in `folder`; return its exit code and all that it printed.

    `run` gets a message: with nothing to do, it may end at the end of its input before the agent is built.
    """
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}
    code, out, errors = await run_forked(words, folder, environment, b"hello\n" if words == ("run",) else b"")
    return code, out + errors


@pytest.mark.parametrize("name", FAULTS)
async def test_check_run_and_ask_refuse_the_same_configuration(tmp_path: Path, name: str) -> None:
    settings, sentences = FAULTS[name]
    write(tmp_path, settings)
    said = {words[0]: await fawn(tmp_path, *words) for words in (("check",), ("run",), ("ask", "hello"))}
    for command, (code, text) in said.items():
        assert (code, "Traceback" in text) == (2, False), f"{command}: {code} {text}"
        assert [each for each in sentences if each not in text] == [], f"{command}: {text}"
        assert "config.yaml:" in text, f"{command} names the line: {text}"


async def test_reload_refuses_with_all_faults(start: Start) -> None:
    service = await start()
    service.configure({"permissions": {"deny": ["shell(rm *)"], "ask": ["reed_file"]}})
    code, text = await service.fawn("reload")
    assert code == 2
    assert [each in text for each in ("'shell(rm *)' never matches", "'reed_file' never matches")] == [True, True]


async def test_a_start_without_faults_passes_the_check(tmp_path: Path) -> None:
    settings = {
        "permissions": {"deny": ["Bash(rm *)", "mcp__*"], "allow": ["read_*", "outward(web_fetch a.example)"]},
        "agents": [{"name": "poet", "kinds": ["bash"], "tools": ["read_file"]}],
        "budgets": [{"scope": "agent", "which": "poet", "tokens": "2M"}],
        "policies": [{"use": POLICY, "after": "ledger"}],
    }
    write(tmp_path, settings)
    code, text = await fawn(tmp_path, "check")
    assert (code, "it can be built" in text) == (0, True), text
