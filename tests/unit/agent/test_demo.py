"""The demo model plays its scenes with the real tools, in a folder."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.blocks import Approve, Ask, Block, Done, Step, Text
from agent.core.context import Answer, ToolServices, Turn, TurnContext
from agent.demo.approval_rule import DEMO_RULES
from agent.messages import UserInput
from agent.permissions.rules import RulePermissions
from agent.schedules import ScheduleRequest
from agent.settings.models import DEMO_CLASS_PATH, ModelSettings
from agent.settings.sections import AgentSettings
from agent.turn.factory import build_agent
from agent.turn.turn import Agent
from sandbox.base import Sandbox
from sandbox.disk.files_only import FilesOnlySandbox
from tests.support.agent_database import SqliteDatabase
from tests.support.current_config import SERVICES
from tests.support.turn_context import FolderMachine, ListSteering, make_turn_context, say
from tests.unit.agent.conftest import view

FAST = ModelSettings("demo", DEMO_CLASS_PATH, options={"word_seconds": 0.0})


class RecordedSchedules:
    """`agent.schedules.Schedules` that accepts every proposal."""

    def __init__(self) -> None:
        self.requests: list[ScheduleRequest] = []

    async def propose(self, request: ScheduleRequest) -> str:
        self.requests.append(request)
        return "Proposed as schedule 1."

    async def list_schedules(self) -> str:
        return ""

    async def pause(self, number: int) -> str:
        return ""

    async def delete(self, number: int) -> str:
        return ""


class ShelfMachine:
    """A `SandboxHandle` of a files-only sandbox that sees these skills."""

    runs_commands = False

    def __init__(self, skills: Path) -> None:
        self._sandbox = FilesOnlySandbox(skills.parent / "files", skills)

    def warm(self) -> None:
        pass

    async def get(self) -> Sandbox:
        return self._sandbox


@pytest.fixture
async def agent(database: SqliteDatabase) -> AsyncIterator[Agent]:
    made = await build_agent((FAST,), AgentSettings(), database, SERVICES)
    yield made
    await made.close()


@pytest.fixture
async def context(database: SqliteDatabase, tmp_path: Path) -> TurnContext:
    return await make_turn_context(database, tmp_path / "files")


async def play(agent: Agent, context: TurnContext, item: UserInput, *answers: Answer) -> list[Block]:
    return [block async for block in agent.run(Turn("c", (item,), answers=answers), context)]


def states(blocks: list[Block]) -> list[str]:
    return [block.state for block in blocks if isinstance(block, Step) and not block.progress]


@pytest.mark.slow
async def test_the_demo_model_introduces_itself(database: SqliteDatabase, context: TurnContext) -> None:
    agent = await build_agent((), AgentSettings(), database, SERVICES)
    blocks = await play(agent, context, say("hi there"))
    text = view(blocks).final().text
    assert "built-in demo" in text
    assert "in `config.local.yaml`" in text, "one's own settings belong there"
    assert all(
        word in text
        for word in ("`plot`", "`ask`", "`approve`", "`fail`", "`slow`", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    )
    assert len([block for block in blocks if isinstance(block, Text)]) > 50  # word by word


async def test_plot_creates_a_picture_and_a_table(agent: Agent, context: TurnContext, tmp_path: Path) -> None:
    text = view(await play(agent, context, say("make me a plot"))).final().text
    assert "visits.png" in text
    png = (tmp_path / "files/outputs/visits.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    data = png[png.index(b"IDAT") + 4 : -16]
    pixels = zlib.decompress(data)
    assert len(pixels) == 400 * (640 * 3 + 1)
    ink = bytes((60, 60, 60))
    rows = [pixels[n * 1921 + 1 : (n + 1) * 1921] for n in range(400)]
    for top, bottom in ((14, 35), (50, 64), (90, 104), (344, 358), (376, 390)):  # title, axes, a tick, days, axis
        assert any(ink in row for row in rows[top:bottom]), f"nothing is written at {top}"
    assert len((tmp_path / "files/outputs/visits.csv").read_text().splitlines()) == 15


async def test_ask_waits_for_the_answer_and_uses_it(agent: Agent, context: TurnContext) -> None:
    blocks = await play(agent, context, say("ask me something"))
    [ask] = [block for block in blocks if isinstance(block, Ask)]
    assert len(ask.options) == 3
    blocks = await play(agent, context, say("A table", "m2"), Answer(ask.id, "A table", "m2"))
    assert "“A table”" in view(blocks).final().text


async def test_fail_shows_a_failed_step_and_recovers(agent: Agent, context: TurnContext) -> None:
    blocks = await play(agent, context, say("fail please"))
    assert states(blocks) == ["running", "failed", "running", "done", "running", "done"]
    assert view(blocks).final().text.startswith("That worked.")


async def test_slow_runs_a_command_of_a_minute(agent: Agent, context: TurnContext) -> None:
    turn = agent.run(Turn("c", (say("something slow"),)), context)
    async for block in turn:
        if isinstance(block, Step):
            assert block.detail.startswith("bash: for second in $(seq 60)")
            break
    await turn.aclose()
    await agent.repair("c", "")


async def test_messages_sent_meanwhile_are_taken_into_account(agent: Agent, context: TurnContext) -> None:
    blocks: list[Block] = []
    waiting = ListSteering()
    context.steering = waiting
    async for block in agent.run(Turn("c", (say("a plot"),)), context):
        if not any(isinstance(b, Step) for b in blocks) and isinstance(block, Step):
            waiting.inputs.append(say("now ask slowly", "m2"))  # words of other scenes change nothing
        blocks.append(block)
    assert "visits.png" in view(blocks).final().text
    assert "“now ask slowly”" in view(blocks).final().text


async def test_skill_reads_an_installed_one(agent: Agent, context: TurnContext, tmp_path: Path) -> None:
    blocks = await play(agent, context, say("which skills do you have?"))
    assert "No skill is installed" in view(blocks).final().text
    folder = tmp_path / "skills" / "plot"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: plot\ndescription: Draw a chart.\n---\nDo this.\n")
    context.sandbox = ShelfMachine(tmp_path / "skills")
    blocks = await play(agent, context, say("which skills do you have?", "m2"))
    assert "These skills are installed: `plot`." in view(blocks).final().text
    assert states(blocks) == ["running", "done", "running", "done"]


@pytest.mark.parametrize("words", ["plot", "slow", "fail", "ask", "hello"])
async def test_without_commands_the_demo_completes_and_names_what_is_missing(
    database: SqliteDatabase, tmp_path: Path, words: str
) -> None:
    agent = await build_agent((FAST,), AgentSettings(), database, ToolServices(runs_commands=False))
    context = await make_turn_context(database, tmp_path / "files")
    assert isinstance(context.sandbox, FolderMachine)
    context.sandbox.runs_commands = False
    blocks = await play(agent, context, say(words))
    done = blocks[-1]
    assert isinstance(done, Done)
    assert done.state == ("waiting" if words == "ask" else "done")
    if words in ("plot", "slow"):
        assert "the sandbox has only files. `fawn check` says why" in view(blocks).final().text
    if words == "plot":
        assert (tmp_path / "files/outputs/visits.csv").exists()


async def test_plan_follows_a_plan_and_plan_mode_waits_for_go(
    agent: Agent, context: TurnContext, tmp_path: Path
) -> None:
    path = tmp_path / "files/outputs/packing-list.md"
    blocks = await play(agent, context, say("show me a plan"))
    assert [item.state for item in view(blocks).final().plan] == ["done", "done"]
    path.unlink()
    blocks = await play(agent, context, say("packing", "m2", mode="plan"))
    [ask] = [block for block in blocks if isinstance(block, Ask)]
    assert "1. Write the packing list" in ask.question
    assert not path.exists()
    blocks = await play(agent, context, say("Go", "m3"), Answer(ask.id, "Go", "m3"))
    assert "Both steps of the plan are done" in view(blocks).final().text
    assert path.exists()


async def test_a_goal_of_the_demo_is_met(agent: Agent, context: TurnContext) -> None:
    assert "Goal met in round 1" in view(await play(agent, context, say("hello", mode="goal"))).final().text


@pytest.mark.parametrize(("decision", "said"), [("Approve", "You approved"), ("Deny", "You did not approve")])
async def test_approve_asks_and_respects_the_decision(
    agent: Agent, context: TurnContext, tmp_path: Path, decision: str, said: str
) -> None:
    context.permissions = RulePermissions(DEMO_RULES)
    blocks = await play(agent, context, say("approve"))
    [approve] = [block for block in blocks if isinstance(block, Approve)]
    assert "approved.txt" in approve.call
    blocks = await play(agent, context, say(decision, "m2"), Answer(approve.id, decision, "m2"))
    assert said in view(blocks).final().text
    assert (tmp_path / "files/outputs/approved.txt").exists() == (decision == "Approve")


async def test_remind_proposes_a_reminder_in_a_minute(database: SqliteDatabase, context: TurnContext) -> None:
    agent = await build_agent((FAST,), AgentSettings(), database, replace(SERVICES, schedules=True))
    schedules = context.schedules = RecordedSchedules()
    text = view(await play(agent, context, say("remind me"))).final().text
    assert "answer the question with **Yes**" in text
    [request] = schedules.requests
    assert request.kind == "reminder"
    assert 0 < (datetime.fromisoformat(request.at) - datetime.now(UTC)).total_seconds() <= 60
    await agent.close()


async def test_delegate_gives_parallel_tasks_to_sub_agents_and_joins_their_results(
    agent: Agent, context: TurnContext, tmp_path: Path
) -> None:
    text = view(await play(agent, context, say("delegate something"))).final().text
    assert "“I have read the results of the tasks before mine: both files have three lines.”" in text
    assert (tmp_path / "files/workspace/demo_numbers.txt").read_text() == "one\ntwo\nthree\n"
    assert (tmp_path / "files/workspace/demo_names.txt").exists()
    assert context.meter.total.calls == 7
