"""External agents: an agent on the reference SDK of the protocol, in a real bubblewrap sandbox."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from agent.acp.connection import AcpConnection, AcpError
from agent.core.context import ToolServices, TurnContext
from agent.permissions.rules import RulePermissions, parse_rules
from agent.setting import Secret
from agent.settings.sections import AgentSettings, ExternalAgentSettings
from agent.turn.tool_list import make_tools
from sandbox.base import OUTPUTS, WORKSPACE, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.engines.select import LazySandbox
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
        ("hang", COMMAND, ("took longer than 12 s", "Its last words: I begin.")),
        ("echo", f"{COMMAND} old", ("speaks version 0 of the protocol",)),
        ("echo", f"{COMMAND} locked", ("Authentication required", "set KEY")),
        ("echo", "echo hello; exit 7", ("exit code 7", "hello")),
        ("echo", "not-a-program", ("exit code 127", "not-a-program: command not found")),
    ],
)
async def test_an_agent_that_fails_is_ended_and_the_reason_said(
    rig: Rig, prompt: str, command: str, words: Sequence[str]
) -> None:
    told = await rig.failed(prompt, replace(CODER, command=command, seconds=12 if prompt == "hang" else 60))
    assert told.startswith("The agent coder did not finish: ")
    assert [each for each in words if each not in told] == []
    assert await rig.is_alone()


async def test_an_unknown_agent_is_named_with_the_known_ones(rig: Rig) -> None:
    assert await rig.failed("echo", agent="other") == "There is no agent 'other'. There are coder."


@pytest.mark.parametrize(
    ("env", "method", "signed_in"),
    [
        ({"CODER_API_KEY": "good"}, "", "coder-api-key"),
        ({"TEAM_KEY": "good"}, "", "team"),
        ({"CODER_API_KEY": "bad", "TEAM_KEY": "good"}, "", "team"),
        ({"CODER_API_KEY": "good", "TEAM_KEY": "good"}, "team", "team"),
    ],
)
async def test_an_agent_that_asks_for_a_sign_in_gets_it_by_its_own_methods(
    rig: Rig, env: dict[str, str], method: str, signed_in: str
) -> None:
    secrets = {name: Secret(value) for name, value in env.items()}
    answer = await rig.said("state -", replace(CODER, command=f"{COMMAND} asks", env=secrets, auth_method=method))
    assert answer.startswith(f"I am signed in by {signed_in} in mode read-only")


@pytest.mark.parametrize(
    ("env", "method", "words"),
    [
        ({}, "", ("Authentication required", "browser: ", "coder-api-key: ", "TEAM_KEY", "none fits", "`auth_method`")),
        ({"TEAM_KEY": "bad"}, "", ("Authentication required", "coder-api-key: ", "the key of team is wrong")),
        ({"TEAM_KEY": "good"}, "other", ("no way to sign in that is called other", "browser, coder-api-key, team")),
    ],
)
async def test_a_sign_in_that_fails_names_the_ways_that_the_agent_offers(
    rig: Rig, env: dict[str, str], method: str, words: Sequence[str]
) -> None:
    secrets = {name: Secret(value) for name, value in env.items()}
    told = await rig.failed("state -", replace(CODER, command=f"{COMMAND} asks", env=secrets, auth_method=method))
    assert [each for each in words if each not in told] == []
    assert await rig.is_alone()


async def test_a_session_has_the_mode_that_is_configured(rig: Rig) -> None:
    with_modes = replace(CODER, command=f"{COMMAND} modes")
    assert "in mode read-only" in await rig.said("state -", with_modes)
    assert "in mode auto" in await rig.said("state -", replace(with_modes, mode="auto"))
    assert "has no mode wild. It has: read-only, auto" in await rig.failed("state -", replace(with_modes, mode="wild"))
    assert "no modes" in await rig.failed("state -", replace(CODER, mode="auto"))


async def test_stopping_the_turn_kills_the_agent(rig: Rig) -> None:
    task = asyncio.create_task(rig.call("run sleep 7003", replace(CODER, permission="allow")))
    await until(lambda: bool(rig.shown), what="the agent's command")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while not await rig.is_alone() or "7003" in await rig.bash("cat /proc/[0-9]*/cmdline"):
            await asyncio.sleep(0.05)


# ---------------------------------------------------------------- hostile programs


PROGRAM = """
import json, sys, time
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
def read():
    return json.loads(sys.stdin.readline())
hello = read()
"""


@dataclass
class Stranger:
    """A program that speaks the protocol in its own way, and what we were asked by it."""

    rig: Rig
    open: int = 0
    most: int = 0
    asked: list[str] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, program: str, data: str = "fine") -> dict[str, Any]:
        """Run the program; it ends with an answer to the first request, whose result is returned."""

        async def answer(method: str, params: dict[str, Any]) -> Any:
            self.asked.append(method)
            self.open += 1
            self.most = max(self.most, self.open)
            try:
                await self.answers.wait()
            finally:
                self.open -= 1
            return data

        connection = AcpConnection("stranger", answer, lambda method, params: None)
        lines = f"{PROGRAM}\n{program}"
        try:
            connection.start(await self.rig.machine.get(), f"python3 -c {shlex.quote(lines)}", {})
            async with asyncio.timeout(60):
                return await connection.request("hello", {})
        finally:
            await connection.close()


END = "send(id=hello['id'], result={'found': found})\nsys.stdout.flush()\ntime.sleep(60)\n"


async def test_a_program_has_at_most_sixteen_requests_open_and_the_others_get_an_error(rig: Rig) -> None:
    stranger = Stranger(rig)
    asking = "for n in range(200): send(id=n, method='ask', params={})\nsys.stdout.flush()\n"
    early = "found = [read() for _ in range(184)]\nfound = [each['error']['code'] for each in found]\n"
    result = await stranger.run(asking + early + END)
    assert result == {"found": [-32005] * 184}
    assert (stranger.most, len(stranger.asked)) == (16, 16)


async def test_a_program_that_reads_no_answers_is_ended_when_it_asks_for_too_much(rig: Rig) -> None:
    stranger = Stranger(rig)
    stranger.answers.set()
    lazy = "for n in range(400): send(id=n, method='ask', params={}); sys.stdout.flush(); time.sleep(0.002)\n"
    with pytest.raises(AcpError, match="asked for more than 64 MB"):
        await stranger.run(lazy + "time.sleep(60)", data="x" * 500_000)
    assert len(stranger.asked) < 64 * 2 + 20


async def test_a_request_with_half_a_character_is_answered(rig: Rig) -> None:
    stranger = Stranger(rig)
    stranger.answers.set()
    asking = r"""print('{"jsonrpc":"2.0","id":1,"method":"ask","params":{"text":"\\ud800"}}', flush=True)""" + "\n"
    result = await stranger.run(asking + "found = read()['result']\n" + END)
    assert result == {"found": "fine"}


async def test_a_line_has_an_end_and_empty_ones_cost_nothing(rig: Rig) -> None:
    loop = asyncio.get_running_loop()
    stranger = Stranger(rig)
    gaps: list[float] = []

    async def watch() -> None:
        while True:
            began = loop.time()
            await asyncio.sleep(0)
            gaps.append(loop.time() - began)

    watching = asyncio.create_task(watch())
    flood = "sys.stdout.write('\\n' * 7_000_000); found = 1\n"
    assert await stranger.run(flood + END) == {"found": 1}
    watching.cancel()
    assert max(gaps) < 1.0
    with pytest.raises(AcpError, match="a line of more than 1 MB"):
        await stranger.run("sys.stdout.write('x' * 2_000_000); sys.stdout.flush(); time.sleep(60)")
    with pytest.raises(AcpError, match="a line of more than 1 MB"):
        await stranger.run("sys.stdout.write('x' * 2_000_000 + '\\n'); sys.stdout.flush(); time.sleep(60)")
