"""The tools as a graph runs them, in a real bubblewrap sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import Command
from pydantic import ValidationError

from agent.blocks import File
from agent.core.context import ToolServices, TurnContext
from agent.core.event_mapper import presented_files
from agent.core.tool import AgentTool, ToolTraits, make_tool
from agent.settings.sections import AgentSettings, ToolSettings
from agent.turn.tool_list import make_tools
from sandbox.base import OUTPUTS, WORKSPACE, SandboxFileError
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.engines.select import LazySandbox
from sandbox.settings import SandboxSettings
from tests.fakes.server import until
from tests.support.agent_database import SqliteDatabase
from tests.support.engines import need_bubblewrap
from tests.support.turn_context import ListSteering, SqliteLedger

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def tools_with(runs_commands: bool) -> list[AgentTool]:
    return make_tools(AgentSettings(), ToolServices(runs_commands))


@dataclass
class Rig:
    """A graph with only the tools, and their context."""

    context: TurnContext
    machine: LazySandbox
    provider: BubblewrapProvider | FilesOnlyProvider
    folder: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = StateGraph(MessagesState, context_schema=TurnContext)
        graph.add_node("tools", ToolNode(tools_with(self.provider.runs_commands)))
        graph.add_edge(START, "tools")
        self.graph = graph.compile(checkpointer=InMemorySaver())

    async def ask(self, work: Any) -> dict[str, Any]:
        """Run the graph; record the custom events and return the last values."""
        values: dict[str, Any] = {}
        async for mode, item in self.graph.astream(
            work, CONFIG, context=self.context, stream_mode=["custom", "values"]
        ):
            assert isinstance(item, dict)
            if mode == "custom":
                self.events.append(item)
            else:
                values = item
        return values

    async def all(self, *calls: tuple[str, dict[str, Any]]) -> list[ToolMessage]:
        """Call tools in parallel, as a model does; return their results."""
        asked = [{"name": name, "args": args, "id": f"c{i}"} for i, (name, args) in enumerate(calls)]
        values = await self.ask({"messages": [AIMessage("", tool_calls=asked)]})
        results: list[ToolMessage] = values["messages"][-len(calls) :]
        return results

    async def call(self, name: str, **args: Any) -> str:
        """Call one tool that must succeed."""
        (result,) = await self.all((name, args))
        assert result.status == "success", result.content
        return str(result.content)

    async def refused(self, name: str, **args: Any) -> str:
        """Call one tool that must fail."""
        (result,) = await self.all((name, args))
        assert result.status == "error", result.content
        assert str(self.folder) not in str(result.content)
        return str(result.content)


async def rig(provider: BubblewrapProvider | FilesOnlyProvider, tmp_path: Path) -> AsyncIterator[Rig]:
    async with SqliteDatabase(tmp_path / "ledger.db") as database:
        machine = LazySandbox(provider, "t", tmp_path / "thread")
        yield Rig(
            TurnContext(machine, SqliteLedger(database, "t"), ListSteering()), machine, provider, tmp_path / "thread"
        )
        await machine.aclose()
        await provider.close()


class Listener(AsyncCallbackHandler):
    """Somebody who listens, such as LangSmith."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        self.names.append(serialized["name"])


@pytest.mark.parametrize(
    "call", [{"given": "a"}, {"given": "a", "times": 2}, {"given": "refused"}, {"given": "gone"}, {}, {"other": 1}]
)
@pytest.mark.parametrize("with_artifact", [False, True])
async def test_a_call_ends_the_same_whether_somebody_listens_or_not(call: dict[str, Any], with_artifact: bool) -> None:
    def work(given: str, times: int) -> str:
        if given == "refused":
            raise ToolException("not that")
        if given == "gone":
            raise SandboxFileError("no such file")
        return given * times

    async def plain(
        given: Annotated[str, "What."], runtime: ToolRuntime[Any, Any], times: Annotated[int, "How often."] = 1
    ) -> str:
        """Repeat."""
        return work(given, times)

    async def paired(
        given: Annotated[str, "What."], runtime: ToolRuntime[Any, Any], times: Annotated[int, "How often."] = 1
    ) -> tuple[str, dict[str, Any]]:
        """Repeat."""
        return work(given, times), {"presented": [given]}

    tool: AgentTool = make_tool(ToolTraits())(paired if with_artifact else plain)  # type: ignore[type-var]  # either
    listener, ends = Listener(), []
    for config in (None, RunnableConfig(callbacks=[listener])):
        given = {"name": tool.name, "args": {**call, "runtime": object()}, "id": "c1", "type": "tool_call"}
        try:
            ends.append(repr(await tool.ainvoke(given, config)))
        except ValidationError as error:
            ends.append(repr([(each["loc"], each["msg"]) for each in error.errors()]))
    assert ends[0] == ends[1]
    assert listener.names == [tool.name]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Rig]:
    need_bubblewrap()
    async for made in rig(BubblewrapProvider(SandboxSettings(tmp_path / "skills")), tmp_path):
        yield made


@pytest.fixture
async def files_only(tmp_path: Path) -> AsyncIterator[Rig]:
    async for made in rig(FilesOnlyProvider(tmp_path / "skills"), tmp_path):
        yield made


# ---------------------------------------------------------------- the list of tools


def test_bash_is_offered_only_where_commands_run() -> None:
    assert tools_with(True)[0].name == "bash"
    assert {tool.name for tool in tools_with(True)} - {tool.name for tool in tools_with(False)} == {"bash"}


def test_every_tool_and_argument_is_described_without_the_runtime() -> None:
    for tool in tools_with(True):
        assert tool.description
        properties = convert_to_openai_tool(tool)["function"]["parameters"]["properties"]
        assert "runtime" not in properties
        assert all(value.get("description") for value in properties.values()), tool.name


def test_repeatable_calls_are_recognised_by_name_and_arguments() -> None:
    traits = {tool.name: tool.traits for tool in tools_with(True)}
    effects = {name: each.effect_of({}) for name, each in traits.items()}
    assert {name for name, effect in effects.items() if effect == "once"} == {"bash", "str_replace"}
    assert traits["write_file"].effect_of({"append": True}) == "once"
    assert effects["ask_clarification"] == "resumable"
    outside = [name for name, each in traits.items() if not each.needs_sandbox]
    assert outside == ["write_todos", "ask_clarification", "task"]


# ---------------------------------------------------------------- bash


async def test_bash_reports_output_and_exit_code(at: Rig) -> None:
    assert await at.call("bash", command="echo hello") == "hello"
    assert await at.call("bash", command="true") == "[exit code 0, no output]"
    assert await at.call("bash", command="echo no >&2; exit 3") == "no\n[exit code 3]"


async def test_bash_keeps_the_working_directory(at: Rig) -> None:
    await at.call("bash", command="mkdir -p app && cd app")
    assert await at.call("bash", command="pwd") == f"{WORKSPACE}/app"


async def test_bash_reports_a_timeout(at: Rig) -> None:
    told = await at.call("bash", command="echo begun; sleep 60", timeout=1)
    assert told == "begun\n[stopped after 1 s, with all its child processes]"


async def test_bash_truncates_long_output_in_the_middle(at: Rig) -> None:
    told = await at.call("bash", command="echo first; seq 100000; echo last; exit 1")
    assert told.startswith("first\n1\n2\n")
    assert told.endswith("100000\nlast\n[exit code 1]")
    assert "bytes left out" in told
    assert len(told) < 65_000


async def test_bash_streams_its_output_a_few_times_a_second(at: Rig) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    endless = "i=0; until [ -e enough ]; do echo line $((i += 1)); sleep 0.01; done"
    running = asyncio.create_task(at.call("bash", command=endless), name="bash")
    await until(lambda: len(at.events) >= 4, what="output of a command that is still running")
    (at.folder / "workspace" / "enough").touch()
    told = (await running).splitlines()
    assert told == [f"line {number}" for number in range(1, len(told) + 1)]
    assert {(event["type"], event["call"]) for event in at.events} == {("output", "c0")}
    assert at.events[0]["text"].startswith("line 1\n")
    assert len(at.events) <= 5 * (loop.time() - began)  # relative to the elapsed time, however slow the machine is


async def test_a_stopped_sandbox_fails_the_call_and_the_next_call_gets_a_new_one(at: Rig) -> None:
    await at.call("write_file", path=f"{WORKSPACE}/kept.txt", content="kept")
    running = asyncio.create_task(at.refused("bash", command="touch begun; sleep 60"))
    await until((at.folder / "workspace" / "begun").exists, what="the command")
    await at.provider.destroy("t")
    assert "files are intact" in await running
    assert await at.call("bash", command="cat kept.txt") == "kept"


# ---------------------------------------------------------------- files


async def test_read_file_returns_a_range_and_says_where_to_continue(at: Rig) -> None:
    text = "".join(f"line {i}\n" for i in range(1, 501))
    await at.call("write_file", path=f"{WORKSPACE}/a.txt", content=text)
    assert await at.call("read_file", path=f"{WORKSPACE}/a.txt") == text
    window = await at.call("read_file", path="a.txt", start_line=200, lines=2)
    assert window == "line 200\nline 201\n[lines 200 to 201; continue with start_line=202]"
    assert await at.call("read_file", path="a.txt", start_line=500, lines=9) == "line 500\n"
    assert await at.call("read_file", path="a.txt", start_line=600) == "[the file has 500 lines]"


async def test_read_file_returns_at_most_80000_characters_and_says_so(at: Rig) -> None:
    await at.call("write_file", path="wide.txt", content=("谢" * 999 + "\n") * 100)
    told = await at.call("read_file", path="wide.txt")
    assert told.endswith("[lines 1 to 80, at the limit of 80,000 characters; continue with start_line=81]")
    assert told.count("谢") == 80 * 999
    await at.call("bash", command="head -c 3000000 /dev/zero | tr '\\0' x > one-line.txt")
    told = await at.call("read_file", path="one-line.txt")
    assert told.startswith("x" * 80_000 + "\n[line 1 is cut")


async def test_read_file_reads_far_into_a_big_file(at: Rig) -> None:
    await at.call("bash", command="seq 1000000 > big.txt")
    assert (await at.call("read_file", path="big.txt", start_line=999_999)) == "999999\n1000000\n"


async def test_read_file_refuses_binary_files(at: Rig) -> None:
    await at.call("bash", command="printf 'PNG\\0\\1' > a.png; mkfifo pipe; ln -s /nowhere dangling; : > empty")
    assert "binary" in await at.refused("read_file", path="a.png")
    assert "pipe" in await at.refused("read_file", path="pipe")
    assert "No such file" in await at.refused("read_file", path="dangling")
    assert "folder" in await at.refused("read_file", path=WORKSPACE)
    assert await at.call("read_file", path="empty") == "[the file is empty]"


async def test_write_file_writes_appends_and_refuses_other_places(at: Rig) -> None:
    assert "5 bytes" in await at.call("write_file", path="sub/a.txt", content="hello")
    await at.call("write_file", path="sub/a.txt", content=" you", append=True)
    assert await at.call("read_file", path=f"{WORKSPACE}/sub/a.txt") == "hello you"
    assert "/etc/passwd" in await at.refused("write_file", path="/etc/passwd", content="x")


async def test_str_replace_requires_exactly_one_match(at: Rig) -> None:
    await at.call("write_file", path="a.py", content="x = 1\ny = 1\n")
    assert "1 place" in await at.call("str_replace", path="a.py", old="x = 1", new="x = 2")
    assert "2 times" in await at.refused("str_replace", path="a.py", old=" = ", new=" := ")
    assert "not in the file" in await at.refused("str_replace", path="a.py", old="z", new="")
    assert "2 places" in await at.call("str_replace", path="a.py", old=" = ", new=" := ", all=True)
    assert await at.call("read_file", path="a.py") == "x := 2\ny := 1\n"


async def test_concurrent_str_replace_calls_lose_no_edit(at: Rig) -> None:
    names = [f"name{i}" for i in range(12)]
    await at.call("write_file", path="a.txt", content="\n".join(f"<{name}>" for name in names))
    edits = [("str_replace", {"path": "a.txt", "old": f"<{name}>", "new": name.upper()}) for name in names]
    assert all(result.status == "success" for result in await at.all(*edits))
    assert await at.call("read_file", path="a.txt") == "\n".join(name.upper() for name in names)


async def test_ls_glob_and_grep(at: Rig) -> None:
    await at.call("bash", command="mkdir -p src; printf 'def f():\\n' > src/a.py; ln -s a.py src/link; : > b.txt")
    assert await at.call("ls", path=WORKSPACE) == f"{WORKSPACE}/b.txt  0\n{WORKSPACE}/src/  folder"
    assert f"{WORKSPACE}/src/link  link" in await at.call("ls", path="src")
    assert await at.call("glob", pattern="*.py") == f"{WORKSPACE}/src/a.py"
    assert await at.call("glob", pattern=f"{WORKSPACE}/src/*", path=WORKSPACE) == f"{WORKSPACE}/src/a.py"
    assert "no file" in await at.call("glob", pattern="*.rs")
    assert await at.call("grep", pattern=r"def \w+", glob="*.py") == f"{WORKSPACE}/src/a.py:1:def f():"
    assert "no line" in await at.call("grep", pattern="nothing like it")
    assert "regular expression" in await at.refused("grep", pattern="(")


async def test_files_work_without_commands(files_only: Rig) -> None:
    await files_only.call("write_file", path=f"{OUTPUTS}/a.csv", content="a,b\n")
    await files_only.call("str_replace", path=f"{OUTPUTS}/a.csv", old="b", new="c")
    assert await files_only.call("read_file", path=f"{OUTPUTS}/a.csv") == "a,c\n"
    results = await files_only.all(("present_files", {"files": [{"path": f"{OUTPUTS}/a.csv"}]}))
    assert [*presented_files(results)] == [File(f"{OUTPUTS}/a.csv")]


async def test_invalid_arguments_are_reported_to_the_model(at: Rig) -> None:
    assert "command" in await at.refused("bash")
    assert "path" in await at.refused("read_file", path=["a"])
    assert "file" in await at.refused("read_file", path="a", file="b")


# ---------------------------------------------------------------- people


async def test_present_files_accepts_files_in_outputs_and_names_the_rest(at: Rig) -> None:
    made = "cd ../outputs; echo 1 > b.png; echo 2 > a.png; ln -s /etc/passwd link; ln a.png hard; mkfifo pipe; mkdir d"
    await at.call("bash", command=made)
    paths = ["b.png", "/etc/passwd", "../workspace/x", "link", "hard", "pipe", "d", "none", f"{OUTPUTS}/b.png"]
    files = [{"path": p if p.startswith("/") else f"{OUTPUTS}/{p}", "caption": f"see {p}"} for p in paths]
    [result] = await at.all(("present_files", {"files": files}))
    told = str(result.content).splitlines()
    assert [*presented_files([result])] == [
        File(f"{OUTPUTS}/b.png", "see b.png"),
        File(f"{OUTPUTS}/b.png", f"see {OUTPUTS}/b.png"),
    ]
    assert len(told) == len(paths)
    refused = {line.split(" will not be sent: ")[0]: line for line in told if " not " in line}
    assert list(refused) == [str(file["path"]) for file in files[1:8]]
    assert "not below" in refused["/etc/passwd"]
    assert "hard link" in refused[f"{OUTPUTS}/hard"]
    assert "pipe" in refused[f"{OUTPUTS}/pipe"]


async def test_ask_clarification_waits_and_returns_the_answer(at: Rig) -> None:
    ask = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["a", "b"]}, "id": "q"}
    values = await at.ask({"messages": [AIMessage("", tool_calls=[ask])]})
    (waiting,) = (await at.graph.aget_state(CONFIG)).interrupts
    assert waiting.value == {"kind": "ask", "question": "Which?", "options": ["a", "b"], "context": True}
    assert not isinstance(values["messages"][-1], ToolMessage)
    values = await at.ask(Command(resume={waiting.id: "b"}))
    assert values["messages"][-1].content == "b"


async def test_a_question_that_nobody_would_read_is_not_asked(at: Rig) -> None:
    said = await at.refused("ask_clarification", question="q" * 15_000, options=["o" * 3_000, "p" * 3_000])
    assert "21,000 characters" in said


async def plain_weather(city: str, days: Annotated[int, "how many"] = 1, style="short"):  # type: ignore[no-untyped-def]  # as people write
    """Return the weather."""
    return {"city": city, "days": days, "style": style}


async def test_a_plain_async_function_is_a_tool_with_the_most_careful_traits() -> None:
    settings = AgentSettings(tools=(ToolSettings(use=f"{__name__}:plain_weather"),))
    *_own, tool = make_tools(settings, ToolServices(runs_commands=False))
    assert (tool.name, tool.description) == ("plain_weather", "Return the weather.")
    schema = convert_to_openai_tool(tool)["function"]["parameters"]
    assert (schema["required"], schema["properties"]["days"]["description"]) == (["city"], "how many")
    assert (tool.traits.permission, tool.traits.effect, tool.traits.read_only) == ("ask", "once", False)
    assert (tool.traits.outward, tool.traits.exposes) == ("arguments", "everything")
    assert await tool.coroutine(city="Rome") == {"city": "Rome", "days": 1, "style": "short"}  # type: ignore[misc]  # it has one
