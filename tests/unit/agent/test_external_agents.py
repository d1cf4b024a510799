"""External agents: an agent on the reference SDK of the protocol, in a real bubblewrap sandbox."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from agent.acp.settings import ExternalAgentSettings
from agent.context import ToolServices, TurnContext
from agent.permissions.rules import RulePermissions, parse_rules
from agent.sections import AgentSettings
from agent.setting import Secret
from agent.tools import make_tools
from sandbox.base import OUTPUTS, WORKSPACE, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.select import LazySandbox
from sandbox.settings import SandboxSettings
from tests.fakes.server import until
from tests.support.agent_database import SqliteDatabase
from tests.support.engines import SKILL_PACKAGES, need_bubblewrap, need_skill_packages
from tests.support.turn_context import ListSteering, SqliteLedger

AGENT = Path(__file__).parents[2] / "support/acp_agent.py"
PACKAGES = ("acp", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions.py")
COMMAND = "PYTHONPATH=/mnt/skills/packages python3 /mnt/skills/acp_agent.py"
CODER = ExternalAgentSettings("coder", COMMAND, "Writes code.", {"KEY": Secret("k1")}, "deny", 60)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for /mnt/skills: the agent and its packages."""
    need_bubblewrap()
    need_skill_packages()
    folder = tmp_path_factory.mktemp("acp") / "shelf"
    for name in PACKAGES:
        source, target = SKILL_PACKAGES / name, folder / "packages" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, target)
    shutil.copy(AGENT, folder)
    return folder


@dataclass
class Rig:
    """A graph with only this tool."""

    context: TurnContext
    machine: LazySandbox
    shown: list[str] = field(default_factory=list)

    async def call(self, prompt: str, settings: ExternalAgentSettings = CODER, agent: str = "coder") -> ToolMessage:
        (tool,) = [each for each in tools_with(settings) if each.name == "invoke_agent"]
        graph = StateGraph(MessagesState, context_schema=TurnContext)
        graph.add_node("tools", ToolNode([tool]))
        graph.add_edge(START, "tools")
        call = {"name": "invoke_agent", "args": {"agent": agent, "prompt": prompt}, "id": "c1"}
        work: Any = {"messages": [AIMessage("", tool_calls=[call])]}
        result: Any = None
        async for mode, item in graph.compile().astream(work, context=self.context, stream_mode=["custom", "values"]):
            if mode == "custom":
                assert isinstance(item, dict)
                assert (item["type"], item["call"]) == ("progress", "c1")
                self.shown.append(item["text"])
            else:
                result = item
        return result["messages"][-1]  # type: ignore[no-any-return]  # the last values of the graph

    async def said(self, prompt: str, settings: ExternalAgentSettings = CODER) -> str:
        """Return the answer of a call that succeeds."""
        result = await self.call(prompt, settings)
        assert result.status == "success", result.content
        return str(result.content)

    async def failed(self, prompt: str, settings: ExternalAgentSettings = CODER, agent: str = "coder") -> str:
        """Return the result of a call that fails."""
        result = await self.call(prompt, settings, agent)
        assert result.status == "error", result.content
        return str(result.content)

    async def bash(self, text: str) -> str:
        return (await (await self.machine.get()).run(ShellCommand(text, cwd=WORKSPACE))).output

    async def is_alone(self) -> bool:
        """Whether no process of an agent runs."""
        return not await self.bash("grep -al 'acp_[a]gent' /proc/[0-9]*/cmdline 2>/dev/null")


@pytest.fixture
async def rig(shelf: Path, tmp_path: Path) -> AsyncIterator[Rig]:
    provider = BubblewrapProvider(SandboxSettings(shelf))
    async with SqliteDatabase(tmp_path / "ledger.db") as database:
        machine = LazySandbox(provider, "t", tmp_path / "thread")
        yield Rig(TurnContext(machine, SqliteLedger(database, "t"), ListSteering()), machine)
        await machine.aclose()
        await provider.close()


def tools_with(*agents: ExternalAgentSettings, runs_commands: bool = True) -> Sequence[Any]:
    return make_tools(AgentSettings(external_agents=agents), ToolServices(runs_commands))


def test_it_is_offered_with_its_agents_where_commands_run() -> None:
    (tool,) = [each for each in tools_with(CODER) if each.name == "invoke_agent"]
    assert tool.description.endswith("Agents:\n- coder: Writes code.")
    for tools in (tools_with(), tools_with(CODER, runs_commands=False)):
        assert "invoke_agent" not in {each.name for each in tools}


async def test_an_agent_gets_the_prompt_and_its_environment_and_its_answer_comes_back(rig: Rig) -> None:
    answer = await rig.said("echo héllo")
    assert answer.startswith("You said héllo with k1\n\n[coder: 0 tool calls, ")
    assert await rig.is_alone()
    assert "k1" not in await rig.bash("env; cat /proc/[0-9]*/environ")


@pytest.mark.parametrize(
    ("default", "allow", "deny", "runs"),
    [
        ("allow", (), (), True),
        ("deny", (), (), False),
        ("ask", (), (), False),  # without anybody to ask
        ("deny", ("acp__coder__edit",), (), True),
        ("allow", (), ("acp__coder__edit(*secret*)",), False),
        ("allow", (), ("acp__coder__execute",), True),
    ],
)
async def test_rules_decide_what_an_agent_may_do(
    rig: Rig, default: Any, allow: Sequence[str], deny: Sequence[str], runs: bool
) -> None:
    rig.context.permissions = RulePermissions(parse_rules(deny, (), allow))
    path = f"{OUTPUTS}/secret.txt"
    answer = await rig.said(f"write {path}", replace(CODER, permission=default))
    assert ("Wrote" in answer, "not allowed" in answer) == (runs, not runs)
    assert (f"files: {path}" in answer) == runs
    assert rig.shown == [f"Write {path}"]
    assert await rig.bash(f"cat {path}") == (
        "one\ntwo\nthree\n" if runs else f"cat: {path}: No such file or directory\n"
    )


async def test_files_are_read_in_the_sandbox_only_and_terminals_are_not_offered(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "host.txt").write_text("host")
    path = f"{WORKSPACE}/a.txt"
    prompt = f"write {path}\nread {path}\nread {tmp_path}/host.txt\nterminal -"
    answer = await rig.said(prompt, replace(CODER, permission="allow"))
    assert f"Wrote {path}Read two\n" in answer
    assert "No such file or directory" in answer
    assert "error -32601" in answer


@pytest.mark.parametrize(
    ("prompt", "command", "words"),
    [
        ("die", COMMAND, ("ended with exit code 3", "out of luck", "Its last words: I begin.")),
        ("flood", COMMAND, ("wrote more than 8 MB",)),
        ("hang", COMMAND, ("took longer than 5 s", "Its last words: I begin.")),
        ("echo", f"{COMMAND} old", ("speaks version 0 of the protocol",)),
        ("echo", f"{COMMAND} locked", ("Authentication required", "set KEY")),
        ("echo", "echo hello; exit 7", ("exit code 7", "hello")),
        ("echo", "not-a-program", ("exit code 127", "not-a-program: command not found")),
    ],
)
async def test_an_agent_that_fails_is_ended_and_the_reason_said(
    rig: Rig, prompt: str, command: str, words: Sequence[str]
) -> None:
    told = await rig.failed(prompt, replace(CODER, command=command, seconds=5 if prompt == "hang" else 60))
    assert told.startswith("The agent coder did not finish: ")
    assert [each for each in words if each not in told] == []
    assert await rig.is_alone()


async def test_an_unknown_agent_is_named_with_the_known_ones(rig: Rig) -> None:
    assert await rig.failed("echo", agent="other") == "There is no agent 'other'. There are coder."


async def test_stopping_the_turn_kills_the_agent(rig: Rig) -> None:
    task = asyncio.create_task(rig.call("run sleep 7003", replace(CODER, permission="allow")))
    await until(lambda: bool(rig.shown), what="the agent's command")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(20):
        while not await rig.is_alone() or "7003" in await rig.bash("cat /proc/[0-9]*/cmdline"):
            await asyncio.sleep(0.05)
