"""The programs of shipped skills through the tool run_skill's own path: JSON in, JSON out, failures in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.tools import ToolException

from agent.skills.skill import read_skill
from agent.tools.run_skill import _prepare, _run_program
from sandbox.base import WORKSPACE
from tests.unit.skills.conftest import ROOT, SkillRunner

pytestmark = pytest.mark.slow

PUBLIC = ROOT / "skills/public"
ENTRIES = sorted(path.name for path in PUBLIC.iterdir() if read_skill(path).entry)


async def run_entry(runner: SkillRunner, name: str, given: dict[str, Any]) -> Any:
    """Run a skill's program as the tool does. Without the packages that tests have: the sandbox has the system's."""
    skill = read_skill(PUBLIC / name)
    assert (PUBLIC / name / skill.entry).is_file()
    assert skill.warnings == ()
    output = await _run_program(runner.sandbox, skill, await _prepare(runner.sandbox, skill, given, ""), 60)
    return json.JSONDecoder().raw_decode(output)[0]


def test_at_least_four_skills_have_a_program_for_the_tool() -> None:
    assert len(ENTRIES) >= 4
    for name in ENTRIES:
        assert "`run_skill`" in (PUBLIC / name / "SKILL.md").read_text("utf-8"), name


def test_each_program_reads_its_input_by_the_shared_module() -> None:
    assert not [*PUBLIC.glob("*/run.py")]
    assert not [*PUBLIC.glob("*/scripts/skill_program.py")]
    for name in ENTRIES:
        program = PUBLIC / name / read_skill(PUBLIC / name).entry
        assert "from skill_program import" in program.read_text("utf-8"), name


@pytest.mark.parametrize("name", ENTRIES)
async def test_wrong_input_is_a_failure_in_words(runner: SkillRunner, name: str) -> None:
    with pytest.raises(ToolException, match=rf"The skill {name} failed: exit code 2\.\nusage: ") as raised:
        await run_entry(runner, name, {"no_such_option": 1})
    assert "Traceback" not in str(raised.value)


async def test_sql_answers_through_the_tool(runner: SkillRunner) -> None:
    await runner.write(orders_csv="person,amount\nada,10\nbob,20\nada,5\n")
    query = "SELECT person, sum(amount) AS total FROM orders GROUP BY person ORDER BY total DESC, person"
    found = await run_entry(runner, "sql", {"files": ["orders.csv"], "query": query, "out": "totals.csv", "rows": 1})
    assert found["table"] == ["| person | total |", "| --- | --- |", "| bob | 20 |"]
    assert (found["rows"], found["shown"]) == (2, 1)
    assert await runner.read("totals.csv") == b"person,total\r\nbob,20\r\nada,15\r\n"
    with pytest.raises(ToolException, match=r"column:? .{0,3}amont"):
        await run_entry(runner, "sql", {"files": ["orders.csv"], "query": "SELECT amont FROM orders"})


async def test_log_triage_answers_through_the_tool(runner: SkillRunner) -> None:
    await runner.write(app_log="2026-11-23 10:00:00 INFO started\n2026-11-23 10:00:05 ERROR disk 7 is full\n")
    found = await run_entry(runner, "log-triage", {"files": ["app.log"], "out": "triage"})
    assert found["errors"][0]["template"] == "ERROR disk <n> is full"
    assert b"`ERROR disk <n> is full`" in await runner.read("triage/summary.md")


async def test_dashboard_answers_through_the_tool(runner: SkillRunner) -> None:
    await runner.write(sales_csv="day,amount\n2026-11-01,3\n2026-11-02,4.5\n")
    page = {"title": "Sales", "figures": [{"label": "All", "column": "amount"}]}
    found = await run_entry(runner, "dashboard", {"description": page, "out": "page.html", "data": "sales.csv"})
    assert found["figures"] == {"All": "7.50"}
    assert b"<p class=value>7.50</p>" in await runner.read("page.html")


async def test_chart_answers_through_the_tool(runner: SkillRunner) -> None:
    await runner.write(sales_csv="region,amount\nNorth,3\nSouth,4\n")
    given = {"data": "sales.csv", "out": "sales.svg", "kind": "bar", "title": "South leads", "y": ["amount"]}
    found = await run_entry(runner, "chart", given)
    assert (found["points"], found["series"]) == (2, ["amount"])
    assert "South leads" in (await runner.read("sales.svg")).decode()


async def test_code_review_answers_through_the_tool(runner: SkillRunner) -> None:
    await runner.bash("mkdir code")
    await runner.sandbox.write(f"{WORKSPACE}/code/a.py", b"x = 1  # FIXME: name\n")
    found = await run_entry(runner, "code-review", {"folder": "code"})
    assert found["todos"]["places"] == [{"place": "a.py:1", "text": "FIXME name"}]


async def test_deep_research_checks_a_report_through_the_tool(runner: SkillRunner) -> None:
    entry = "[1] Tea. https://example.org/tea (accessed 2026-11-22)"
    await runner.write(report_md=f"Tea is old [1].\n\n## Sources\n{entry}\n")
    assert (await run_entry(runner, "deep-research", {"report": "report.md"}))["ok"]
    await runner.write(report_md=f"Tea is old [2].\n\n## Sources\n{entry}\n")
    with pytest.raises(ToolException, match=r"\[2\] is cited but has no entry"):
        await run_entry(runner, "deep-research", {"report": "report.md"})
