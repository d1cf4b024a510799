"""MCP: names, schemas and answers; real servers that die; `tool_search` on the wire; questions of servers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agent.blocks import ALLOW_HERE, Approve, Ask, Block, Notice, Step
from agent.core.context import NO_ANSWER
from agent.core.context import Answer as HumanAnswer
from agent.mcp.bounds import MAX_DESCRIPTION_CHARS
from agent.mcp.connection import McpCallLost, McpConnection, McpRefused, McpUnavailable
from agent.mcp.names import MAX_NAME_CHARS, tool_name
from agent.mcp.progress import SHOW_SECONDS
from agent.permissions.rules import RulePermissions, parse_rules
from agent.setting import Secret
from agent.settings.mcp import McpConfig, McpOAuthSettings, McpServerSettings
from agent.settings.subagents import KindSettings, SubagentSettings
from agent.turn.tool_list import make_tools
from tests.fakes.mcp_http import CLIENT, SECRET, UNKNOWN_SESSION, McpHttpServer
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.support.agent_tools import tool_with
from tests.support.current_config import SERVICES, agent_settings
from tests.support.engines import need_bubblewrap
from tests.support.forked_services import python
from tests.support.turn_context import say
from tests.unit.agent.conftest import Bench, Workshop, view
from tests.unit.agent.test_resume import call, end, script

FAKES = Path(__file__).parents[2] / "fakes"
BIN = Path(sys.executable).parent
EVERYTHING = BIN.parent / "clients/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
pytestmark = pytest.mark.slow

Settings = Callable[..., McpServerSettings]


@pytest.fixture
def server(tmp_path: Path) -> Settings:
    """`server("modern")` and `server("old", name=…)` are settings of the test servers."""

    def make(kind: str, name: str = "", many: int = 0, **more: Any) -> McpServerSettings:
        env = {"NOTES": str(tmp_path / "notes"), "MANY": str(many)} | more.pop("env", {})
        more = {"start_seconds": 60, "wait_seconds": 60} | more  # on a busy machine a start takes seconds
        command, *words = [sys.executable] if "sandbox" in more else python()
        return McpServerSettings(
            name or kind, command=command, args=(*words, str(FAKES / f"mcp_{kind}.py")), env=env, **more
        )

    return make


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[McpServerSettings], McpConnection]]:
    async with AsyncExitStack() as stack:

        def make(settings: McpServerSettings) -> McpConnection:
            connection = McpConnection(settings)
            stack.push_async_callback(connection.close)
            return connection

        yield make


def children(name: str) -> list[int]:
    """Return the processes of this one whose command line contains a name."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in own if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


# ---------------------------------------------------------------- names and schemas


@given(st.tuples(st.text(max_size=70), st.text(max_size=70)), st.tuples(st.text(max_size=70), st.text(max_size=70)))
def test_names_are_valid_and_never_two_alike(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = tool_name(*one), tool_name(*other)
    for name in names:
        assert len(name) <= MAX_NAME_CHARS
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert (names[0] == names[1]) == (one == other)


def test_names_that_need_no_change_stay_readable_and_those_that_could_be_two_get_a_hash() -> None:
    assert tool_name("github", "get_me") == "mcp__github__get_me"
    assert tool_name("a__b", "c") != tool_name("a", "b__c")
    assert tool_name("a_", "b") != tool_name("a", "_b")
    assert tool_name("git hub", "créer/issue").startswith("mcp__git_hub__cr_er_issue_")


# ---------------------------------------------------------------- connections


@pytest.mark.parametrize(("kind", "protocol"), [("modern", "2026-07-28"), ("old", "2025-06-18")])
async def test_both_eras_of_the_protocol_are_spoken(server: Settings, connect: Any, kind: str, protocol: str) -> None:
    connection = connect(server(kind))
    await connection.refresh()
    assert connection.protocol == protocol
    assert "fetch" in [tool.name for tool in connection.tools]
    assert (await connection.request("fetch", {})).result.content[0].text == kind


async def test_a_server_that_died_between_two_calls_is_started_for_the_next_one(server: Settings, connect: Any) -> None:
    connection = connect(server("modern"))
    await connection.request("note", {"text": "a"})
    [pid] = children("mcp_modern")
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not connection.protocol, what="the end of the connection")
    found = await connection.request("note", {"text": "b"})  # would be unknown if it were found during the call
    assert found.result.content[0].text == "b"
    assert connection.starts == 2


async def test_a_server_that_keeps_failing_gets_a_pause(connect: Any) -> None:
    connection = connect(McpServerSettings("none", command=sys.executable, args=("-c", "exit('no such database')")))
    for _ in range(2):
        with pytest.raises(McpUnavailable, match="Connection closed"):
            await connection.refresh()
    for refresh in (connection.refresh, connection.refresh_soon):
        with pytest.raises(McpUnavailable, match="failed 2 times in a row"):
            await refresh()
    assert connection.starts == 2


async def test_the_pauses_of_a_slow_failure_grow_however_long_each_takes(connect: Any) -> None:
    """A server that hangs until its timeout never fails three times within a minute."""
    hangs = McpServerSettings("slow", command="sleep", args=("60",), start_seconds=1.5, wait_seconds=1.2)
    connection, loop = connect(hangs), asyncio.get_running_loop()
    waited, said = [], ""
    async with asyncio.timeout(60):
        while "failed 2 times in a row" not in said:
            began = loop.time()
            with pytest.raises(McpUnavailable) as caught:
                await connection.refresh_soon()
            waited.append(loop.time() - began)
            said = str(caught.value)
            await asyncio.sleep(0.1)
    assert connection.starts == 2, "then it has a pause"
    assert [each > 1.0 for each in waited].count(True) == 1, "only the first start is waited for"


async def test_a_list_of_tools_that_never_comes_delays_nobody(server: Settings, connect: Any) -> None:
    connection = connect(server("old", env={"HANG": "1"}))
    await connection.refresh()
    connection.settings = replace(connection.settings, start_seconds=0.2)  # it has started, however long that took
    assert "grown" in str((await connection.request("grow", {})).result.content)
    await until(lambda: connection._stale, what="the word of the server that its tools have changed")
    async with asyncio.timeout(60):
        with pytest.raises(McpUnavailable, match="does not list its tools"):
            await connection.refresh()
    assert (await connection.request("fetch", {})).result.content[0].text == "old"
    assert connection.starts == 1


async def test_a_missing_program_and_a_slow_server_are_named(connect: Any) -> None:
    with pytest.raises(McpUnavailable, match="there is no program 'no-such-program'"):
        await connect(McpServerSettings("none", command="no-such-program")).refresh()
    with pytest.raises(McpUnavailable, match="did not start within"):
        await connect(McpServerSettings("slow", command="sleep", args=("60",), start_seconds=0.2)).refresh()


async def test_a_server_gets_only_the_environment_that_is_named(server: Settings, connect: Any) -> None:
    connection = connect(server("modern", env={"TOKEN": "named"}))
    found = json.loads((await connection.request("environment", {})).result.content[0].text)
    assert found["TOKEN"] == "named"
    assert set(found) <= {"TOKEN", "NOTES", "MANY", "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}


async def test_a_server_in_a_sandbox_sees_only_what_is_named(server: Settings, connect: Any, tmp_path: Path) -> None:
    need_bubblewrap()
    secret = tmp_path / "secret"
    secret.write_text("s")
    work = tmp_path / "work"
    work.mkdir()
    read = (str(BIN.parent), str(Path(sys.base_prefix).resolve()), sys.base_prefix, str(FAKES))
    env = {"NOTES": str(work / "notes")}
    connection = connect(server("modern", sandbox=True, read=read, cwd=str(work), env=env))
    assert (await connection.request("exists", {"path": str(secret)})).result.content[0].text == "false"
    assert not (await connection.request("note", {"text": "a"})).result.is_error
    assert notes(work) == ["a"]
    seen = json.loads((await connection.request("environment", {})).result.content[0].text)
    assert "OPENAI_API_KEY" not in seen


async def test_a_list_that_changes_is_read_again(server: Settings, connect: Any) -> None:
    connection = connect(server("old"))
    await connection.refresh()
    await connection.request("grow", {})

    async def grown() -> bool:
        await connection.refresh()
        return "grown" in [tool.name for tool in connection.tools]

    while not await grown():
        await asyncio.sleep(0)


async def test_a_call_in_flight_is_repeated_only_by_those_who_may(
    server: Settings, connect: Any, tmp_path: Path
) -> None:
    connection = connect(server("modern"))
    (tmp_path / "notes.die").touch()
    with pytest.raises(McpCallLost):
        await connection.request("note", {"text": "once"})
    assert notes(tmp_path) == ["once"]


async def test_real_servers_of_other_people_work(connect: Any, tmp_path: Path) -> None:
    time = connect(McpServerSettings("time", command=str(BIN / "mcp-server-time")))
    found = await time.request("get_current_time", {"timezone": "Asia/Shanghai"})
    assert "+08:00" in found.result.content[0].text
    person = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init", "-q"], [*person, "commit", "-q", "--allow-empty", "-m", "a first one"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    git = connect(McpServerSettings("git", command=str(BIN / "mcp-server-git"), args=("--repository", str(tmp_path))))
    found = await git.request("git_log", {"repo_path": str(tmp_path)})
    assert "a first one" in found.result.content[0].text


@pytest.mark.parametrize("told", UNKNOWN_SESSION)
async def test_http_servers_get_headers_and_tokens_and_a_lost_session_begins_again(connect: Any, told: str) -> None:
    async with McpHttpServer() as http:
        http.unknown = UNKNOWN_SESSION[told]
        settings = McpServerSettings("http", url=f"{http.base_url}/mcp", token=Secret("t"), headers={"X-Team": "a"})
        connection = connect(settings)
        assert (await connection.request("whoami", {})).result.content[0].text == "Bearer t"
        assert {headers.get("X-Team") for headers in http.headers} == {"a"}
        http.sessions.clear()  # as after a restart of the server
        assert (await connection.request("whoami", {})).result.content[0].text == "Bearer t"
        assert connection.starts == 2


@pytest.mark.parametrize("told", ["older Python SDK", "JSON-RPC"])
async def test_a_session_that_is_lost_behind_a_redirect_begins_again(connect: Any, told: str) -> None:
    async with McpHttpServer() as http:
        http.unknown = UNKNOWN_SESSION[told]
        connection = connect(McpServerSettings("http", url=f"{http.base_url}/moved"))
        await connection.request("whoami", {})
        http.sessions.clear()
        await connection.request("whoami", {})
        assert connection.starts == 2


REFUSALS: dict[str, Callable[[Any], web.Response]] = {  # of a call, not of its session
    "JSON": lambda message: web.json_response({"error": "the arguments are wrong"}, status=400),
    "of the call": lambda message: web.json_response(
        {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "wrong"}}, status=400
    ),
}


@pytest.mark.parametrize("told", REFUSALS)
async def test_a_refusal_that_is_about_no_session_is_one(connect: Any, told: str) -> None:
    async with McpHttpServer() as http:
        connection = connect(McpServerSettings("http", url=f"{http.base_url}/mcp"))
        await connection.request("whoami", {})
        http.sessions.clear()
        http.unknown = REFUSALS[told]
        with pytest.raises((McpRefused, McpCallLost)):
            await connection.request("whoami", {})
        assert connection.starts == 1


async def test_a_server_that_refuses_every_session_is_told_in_its_words(connect: Any) -> None:
    class Strict(McpHttpServer):
        async def _call(self, request: web.Request) -> web.Response:
            message = await request.json()
            if message.get("method") != "tools/call":
                return await super()._call(request)
            return UNKNOWN_SESSION["JSON-RPC"](message)

    async with Strict() as http:
        connection = connect(McpServerSettings("http", url=f"{http.base_url}/mcp"))
        with pytest.raises(McpRefused, match="Call initialize first"):
            await connection.request("whoami", {})
        assert connection.starts == 2


EARLY = r"""
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "server/discover":
        sys.exit("1 validation error: Input should be 'tools/list'")
    about = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "e"}}
    about["serverInfo"]["version"] = "1"
    found = {"initialize": about, "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}}
    if "id" in m:
        words = {"content": [{"type": "text", "text": "3"}]}
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": found.get(m["method"], words)}), flush=True)
"""


async def test_a_server_that_ends_at_the_question_for_its_versions_is_asked_the_old_way(connect: Any) -> None:
    """Those of the Python SDK before 1.9, on stdio."""
    connection = connect(McpServerSettings("early", command=sys.executable, args=("-c", EARLY), start_seconds=60))
    assert (await connection.request("add", {})).result.content[0].text == "3"
    assert (connection.protocol, connection.starts) == ("2024-11-05", 1)


NOISY = r"""
import json, sys
banner, each, size = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
def noise(n):
    for i in range(n):
        sys.stdout.buffer.write((b'{"level": "info"} %d' % i).ljust(size, b"\xd7") + b"\n")
def send(m, result):
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
noise(banner)
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}
        send(m, {"protocolVersion": m["params"]["protocolVersion"], **about})
    elif m.get("method") == "tools/list":
        send(m, {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]})
    elif m.get("method") == "tools/call":
        noise(each)
        send(m, {"content": [{"type": "text", "text": "seen"}]})
    elif "id" in m:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
"""


@pytest.mark.parametrize(("banner", "each", "size"), [(36, 0, 40), (0, 1, 40), (500, 30, 40), (3, 2, 100_000)])
async def test_lines_that_are_no_messages_do_not_end_a_server_that_answers(
    connect: Any, banner: int, each: int, size: int
) -> None:
    words = ("-c", NOISY, str(banner), str(each), str(size))
    connection = connect(McpServerSettings("n", command=sys.executable, args=words))
    for _ in range(8):
        assert (await connection.request("look", {})).result.content[0].text == "seen"
    assert connection.starts == 1


async def test_oauth_with_client_credentials(connect: Any) -> None:
    async with McpHttpServer(oauth=True) as http:
        oauth = McpOAuthSettings(CLIENT, Secret(SECRET), issuer=http.base_url)
        connection = connect(McpServerSettings("http", url=f"{http.base_url}/mcp", oauth=oauth))
        assert (await connection.request("whoami", {})).result.content[0].text == "Bearer token-0"
        wrong = McpOAuthSettings(CLIENT, Secret("wrong"), issuer=http.base_url)
        with pytest.raises(McpUnavailable):
            await connect(McpServerSettings("http", url=f"{http.base_url}/mcp", oauth=wrong)).refresh()
        elsewhere = McpOAuthSettings(CLIENT, Secret(SECRET), issuer="https://elsewhere.example")
        with pytest.raises(McpUnavailable):
            await connect(McpServerSettings("http", url=f"{http.base_url}/mcp", oauth=elsewhere)).refresh()
        assert http.tokens == ["token-0"], "the secret went to the named issuer only"


# ---------------------------------------------------------------- the agent


ALLOW_ALL = RulePermissions(parse_rules(allow=["mcp__*"]))


async def run(bench: Bench, text: str, *, gate: Any = ALLOW_ALL, **more: Any) -> list[Block]:
    context = await bench.context()
    context.permissions = gate
    inputs = (say(text, key=more.pop("key", "m1")),) if text else ()
    blocks = await bench.run(*inputs, context=context, **more)
    await bench.database.run(lambda execute: execute("DELETE FROM ledger", {}))  # as the bot does after a turn
    return blocks


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


def offered(model: FakeModel) -> list[list[str]]:
    """Return the names of the tools in each request, without those of the bench."""
    return [
        [name for tool in request.tools if (name := tool["function"]["name"]).startswith(("mcp__", "tool_search"))]
        for request in model.requests()
    ]


def bench_of(make: Workshop, *servers: McpServerSettings, **more: Any) -> Any:
    return make(mcp=McpConfig(servers, **more))


async def test_few_tools_are_sent_and_many_are_found_and_promoted(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern", many=40, tools=("tool_*",)))
    find = [call("tool_search", query="zebras")], [call("mcp__modern__tool_07", text="hi")]
    blocks = await run(bench, script(*find, text="found"))
    assert view(blocks).final().text == "found"
    assert "7 hi" in results(model)[-1]
    assert offered(model) == [
        ["tool_search"],
        ["tool_search", "mcp__modern__tool_07"],
        ["tool_search", "mcp__modern__tool_07"],
    ]
    await run(
        bench,
        script([call("tool_search", query="select:mcp__modern__tool_03,mcp__modern__tool_01")], text="x"),
        key="m2",
    )
    assert offered(model)[-1] == [
        "tool_search",
        "mcp__modern__tool_07",  # the earlier one stays in front
        "mcp__modern__tool_01",
        "mcp__modern__tool_03",
    ]
    whole = [json.dumps(request.tools) for request in model.requests()]
    for earlier, later in itertools.pairwise(whole):
        assert later.startswith(earlier[:-1]), "what a provider has cached stays valid"
    search = next(tool for tool in model.requests()[0].tools if tool["function"]["name"] == "tool_search")
    assert "modern: tool_00, tool_01" in search["function"]["description"]
    assert "tool_39" in search["function"]["description"]
    assert "zebras" not in json.dumps(model.requests()[0].messages[0]), "not in the system prompt"


async def test_another_conversation_has_not_the_promoted_tools(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern", many=40, tools=("tool_*",)))
    await run(bench, script([call("tool_search", query="zebras")], text="x"))
    await run(bench, script([call("tool_search", query="unicorns")], text="x"), conversation="d", key="m2")
    assert offered(model)[-1] == ["tool_search"]
    assert "No tool matches 'unicorns'" in results(model)[-1]


async def test_two_servers_with_one_tool_name_differ_and_descriptions_are_cut(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern", tools=("fetch",)), server("old", tools=("fetch", "colour/*")))
    blocks = await run(bench, script([call("mcp__modern__fetch"), call("mcp__old__fetch")], text="both"))
    [modern, old] = results(model)
    assert ("\nmodern\n" in modern, "\nold\n" in old) == (True, True)
    assert modern.startswith('<mcp-result server="modern">\n[Content by strangers')
    [names] = offered(model)[:1]
    assert names[:2] == ["mcp__modern__fetch", tool_name("old", "colour/mix")]
    titles = [block.title for block in blocks if isinstance(block, Step) and block.state == "running"]
    assert titles == ["Using fetch of modern", "Using fetch of old"]
    for tool in model.requests()[0].tools:
        assert len(tool["function"]["description"]) <= MAX_DESCRIPTION_CHARS * 5


async def test_results_of_every_kind_reach_the_model(make: Workshop, model: FakeModel, server: Settings) -> None:
    bench = await bench_of(make, server("modern"), server("old"), defer_tokens=100_000)
    calls = [
        call("mcp__modern__wrong"),
        call("mcp__modern__media"),
        call("mcp__old__hologram"),
        call("mcp__modern__runtime", runtime="a", config="b", self="c"),
        call("mcp__modern__note"),
        call("mcp__modern__no_such_tool"),
    ]
    await run(bench, script(calls, text="all"))
    wrong, media, hologram, runtime, invalid, unknown = results(model)
    assert "the moon is closed" in wrong
    assert "look\n\n[image/png, 12 bytes, stored as /mnt/user-data/workspace/.mcp/" in media
    assert "view_image shows it" in media
    assert len(list(bench.folder.glob("workspace/.mcp/*"))) == 2
    assert "form that this client does not understand" in hologram
    assert "a b c" in runtime
    assert "text" in invalid
    assert "not a valid tool" in unknown
    state = [message for message in await bench.state() if message.type == "tool"]
    assert [message.status for message in state] == ["error", "success", "error", "success", "error", "error"]


async def test_a_call_needs_approval_and_a_denied_tool_is_hidden(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    bench = await bench_of(make, server("modern"), defer_tokens=100_000)
    gate = RulePermissions(parse_rules(deny=["mcp__modern__put"]))
    blocks = await run(bench, script([call("mcp__modern__note", text="a")], text="done"), gate=gate)
    [approve] = [block for block in blocks if isinstance(block, Approve)]
    assert (end(blocks), notes(tmp_path)) == ("waiting", [])
    assert "mcp__modern__put" not in offered(model)[0]
    await run(bench, "", gate=gate, answers=(HumanAnswer(approve.id, "Approve", "a1"),))
    assert notes(tmp_path) == ["a"]


@pytest.mark.parametrize("trusted", [False, True])
async def test_what_a_server_says_of_its_tools_counts_while_planning_only_if_configured(
    make: Workshop, model: FakeModel, server: Settings, trusted: bool
) -> None:
    bench = await bench_of(make, server("old", trust_hints=trusted))
    planning = say(script([call("mcp__old__survey")], text="my plan"), mode="plan")
    context = await bench.context()
    context.permissions = ALLOW_ALL
    blocks = await bench.run(planning, context=context)
    assert "Plan mode:" in results(model)[0] if not trusted else end(blocks) == "waiting"


async def test_a_server_that_dies_in_a_call(make: Workshop, model: FakeModel, server: Settings, tmp_path: Path) -> None:
    bench = await bench_of(make, server("modern"), defer_tokens=100_000)
    (tmp_path / "notes.die").touch()
    await run(bench, script([call("mcp__modern__put", text="twice")], text="x"))
    assert notes(tmp_path) == ["twice", "twice"]  # it says that it may be repeated
    assert "\ntwice\n" in results(model)[-1]
    (tmp_path / "notes.die").touch()
    await run(bench, script([call("mcp__modern__note", text="once")], text="x"), key="m2")
    assert notes(tmp_path)[2:] == ["once"]
    assert "its outcome is unknown" in results(model)[-1]
    await run(bench, script([call("mcp__modern__note", text="again")], text="x"), key="m3")
    assert notes(tmp_path)[3:] == ["again"]


async def test_a_server_that_is_not_available_is_named_once_and_the_others_work(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, McpServerSettings("gone", command="/bin/false"), server("old", tools=("fetch",)))
    blocks = await run(bench, script([call("mcp__old__fetch")], text="works"))
    told = [block.text for block in blocks if isinstance(block, Notice)]
    assert told == ["The MCP server “gone” is not available. I continue without it."]
    assert "old" in results(model)[0]


async def test_a_call_of_a_tool_whose_server_is_down_says_so(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, McpServerSettings("gone", command="/bin/false"), server("old", tools=("fetch",)))
    calls = [call("mcp__gone__read"), call("mcp__old__nothing"), call("tool_search", query="gone things")]
    await run(bench, script(calls, text="hm"))
    down, unknown, search = results(model)
    assert down.startswith("The MCP server gone is down, so its tools cannot be used now. The reason: ")
    assert "not a valid tool" in unknown
    assert "No tool matches" in search
    assert "The MCP server gone is down" in search
    [listing] = [tool for tool in model.requests()[0].tools if tool["function"]["name"] == "tool_search"]
    assert "gone: (still starting, or down" in listing["function"]["description"]


async def test_a_server_that_starts_slowly_joins_a_later_step_of_the_turn(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    slow = server("modern", tools=("fetch",), wait_seconds=0.1)
    slow = replace(slow, command="/bin/sh", args=("-c", f"sleep 3; exec {sys.executable} {' '.join(slow.args)}"))
    bench = await bench_of(make, slow, server("old", tools=("fetch",)))
    await bench.agent._mcp.servers[1].refresh()
    find = [call("tool_search", query="say which server")], [call("mcp__modern__fetch")]
    blocks = await run(bench, script(*find, text="found"))
    told = [block.text for block in blocks if isinstance(block, Notice)]
    assert told == [
        "The MCP server “modern” is still starting. I begin without it; its tools join as soon as it is ready."
    ]
    assert offered(model)[0] == ["tool_search", "mcp__old__fetch"]
    assert offered(model)[-1] == ["mcp__modern__fetch", "mcp__old__fetch"]
    assert "\nmodern\n" in results(model)[-1]


async def test_the_progress_of_a_call_is_the_live_text_of_its_step(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern"), defer_tokens=100_000)
    blocks = await run(bench, script([call("mcp__modern__count", upto=3)], text="done"))
    shown = [block.progress for block in blocks if isinstance(block, Step) and block.progress]
    assert shown[:1] == ["1 of 3: part 1"]
    assert "counted" in results(model)[-1]
    assert [block.progress for block in blocks if isinstance(block, Step)][-1] == ""


async def test_a_flood_of_progress_is_shown_once_in_a_while(make: Workshop, model: FakeModel, server: Settings) -> None:
    bench = await bench_of(make, server("hostile", tools=("many_reports",)))
    loop = asyncio.get_running_loop()
    began = loop.time()
    blocks = await run(bench, script([call("mcp__hostile__many_reports")], text="done"))
    shown = [block.progress for block in blocks if isinstance(block, Step) and block.progress]
    assert 1 <= len(shown) <= (loop.time() - began) / SHOW_SECONDS + 1
    assert max(map(len, shown)) <= 120
    assert "flooded" in results(model)[-1]


async def test_a_long_result_is_whole_in_a_file_of_the_conversation(
    make: Workshop, model: FakeModel, server: Settings
) -> None:
    bench = await bench_of(make, server("modern"), defer_tokens=100_000)
    await run(bench, script([call("mcp__modern__long", chars=1_500_000)], text="done"))
    [result] = results(model)
    [path] = re.findall(r"/mnt/user-data/(workspace/\.mcp/\w+\.txt)", result)
    assert (bench.folder / path).read_text().endswith("word the end")
    assert (bench.folder / path).stat().st_size == 1_500_007
    assert "The whole result of 1500007 characters" in result
    assert result.startswith('<mcp-result server="modern">\n[Content by strangers')
    assert len(result) < 5000


async def test_a_server_that_hangs_delays_no_turn(make: Workshop, model: FakeModel, server: Settings) -> None:
    hangs = McpServerSettings("hangs", command="sleep", args=("600",), wait_seconds=0.2, start_seconds=600)
    bench = await bench_of(make, hangs, server("old", tools=("fetch",), wait_seconds=30))
    async with asyncio.timeout(120):  # its start may take ten minutes
        blocks = await run(bench, script([call("mcp__old__fetch")], text="works"))
        assert view(blocks).final().text.startswith("works")
        assert ["“hangs” is still starting" in block.text for block in blocks if isinstance(block, Notice)] == [True]
        await run(bench, script([call("mcp__old__fetch")], text="works"), key="m2")
    assert offered(model)[-1] == ["tool_search", "mcp__old__fetch"]


async def test_a_slow_call_times_out(make: Workshop, model: FakeModel, server: Settings) -> None:
    bench = await bench_of(make, server("modern", call_seconds=0.3), defer_tokens=100_000)
    await run(bench, script([call("mcp__modern__wait", seconds=60)], text="late"))
    assert "did not answer within 0.3 s" in results(model)[0]


async def test_a_sub_agent_has_the_tools_that_its_kind_names(
    make: Workshop, model: FakeModel, server: Settings
) -> None:

    kinds = SubagentSettings(kinds=(KindSettings("clerk", "Fetches.", tools=("mcp__old__fetch",)),))
    settings = agent_settings(subagents=kinds)
    task = next(tool for tool in make_tools(settings, SERVICES) if tool.name == "task")
    bench = await make(mcp=McpConfig((server("old"),)), tools=[task], subagents=kinds)
    prompt = script([call("mcp__old__fetch")], text="fetched")
    given = call("task", description="fetch it now", prompt=prompt, kind="clerk")
    await run(bench, script([given], text="done"))
    lead, worker = offered(model)[:2]
    assert (len(lead), worker) == (9, ["mcp__old__fetch"])


# ---------------------------------------------------------------- questions of servers


def open_questions(blocks: list[Block]) -> list[Ask]:
    return [block for block in blocks if isinstance(block, Ask)]


async def converse(bench: Bench, tool: str, *answers: str, gate: Any = ALLOW_ALL, **args: Any) -> list[str]:
    """Run a call whose server asks, answer its questions in turns of their own, and return them."""
    blocks = await run(bench, script([call(tool, **args)], text="painted"), gate=gate)
    asked = []
    for number, words in enumerate(answers):
        [question] = open_questions(blocks)
        asked.append(question.question)
        answer = HumanAnswer(question.id, words, f"a{number}")
        blocks = await run(bench, "", gate=gate, answers=(answer,))
    assert open_questions(blocks) == []
    return asked


async def test_a_question_of_the_new_protocol_is_asked_and_answered(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    bench = await bench_of(make, server("modern"), defer_tokens=100_000)
    [question] = await converse(bench, "mcp__modern__paint", "green", wall="north")
    assert question == "The server “modern” asks: `Which colour?`\n`Colour`: `any colour`"
    assert notes(tmp_path) == ["north green"]


@pytest.mark.parametrize(
    "answer",
    [
        "blue\n2",
        "Blue, 2, no",
        "colour: blue\ncoats: 2\nhurry: skip",
        "2. 2\n1. blue\n3. -",
        "coats = 2; Colour = BLUE",
        "Colour：blue\ncoats：2",
    ],
)
async def test_a_form_is_one_question_whose_answer_may_have_many_forms(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path, answer: str
) -> None:
    bench = await bench_of(make, server("old"))
    [question] = await converse(bench, "mcp__old__paint", answer)
    assert question.startswith("The server “old” asks: `How shall I paint?`\n1. `Colour` (`red, blue`)\n2. `coats` (")
    assert "3. `hurry` (yes or no; may be left out): `costs more`" in question
    hurry = ', "hurry": false' if answer.endswith("no") else ""
    assert notes(tmp_path) == [f'["accept", {{"colour": "blue", "coats": 2{hurry}}}]']


async def test_a_wrong_answer_to_a_form_asks_for_its_field_only_and_throws_nothing_away(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    bench = await bench_of(make, server("old"))
    wrong = ["7", "lots", "0", "-2"]
    asked = await converse(bench, "mcp__old__paint", "blue\nseven\nyes", *wrong, "3")
    assert ["`coats`" in each for each in asked[1:]] == [True] * 5
    assert ["`Colour`" in each for each in asked] == [True, *[False] * 5]
    assert "Expected: a whole number, from 1 to 3." in asked[1]
    assert ["This answer does not fit." in each for each in asked] == [False, *[True] * 5]
    assert ["Kept so far: colour: blue, hurry: True." in each for each in asked] == [False] * 3 + [True] * 3
    assert "To give up, choose Decline." in asked[-1]
    assert notes(tmp_path) == ['["accept", {"colour": "blue", "coats": 3, "hurry": true}]']
    assert len(children("mcp_old")) == 1


@pytest.mark.parametrize(("words", "action"), [("Decline", "decline"), (NO_ANSWER, "cancel")])
async def test_a_person_may_decline(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path, words: str, action: str
) -> None:
    bench = await bench_of(make, server("old"))
    await converse(bench, "mcp__old__paint", words)
    assert notes(tmp_path) == [f'["{action}", null]']


async def test_an_approval_is_not_taken_for_the_answer_to_a_question(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    bench = await bench_of(make, server("modern"), defer_tokens=100_000)
    blocks = await run(bench, script([call("mcp__modern__paint", wall="east")], text="done"), gate=RulePermissions())
    [approve] = [block for block in blocks if isinstance(block, Approve)]
    answer = HumanAnswer(approve.id, ALLOW_HERE, "a1")
    blocks = await run(bench, "", gate=RulePermissions(), answers=(answer,))
    [question] = open_questions(blocks)
    answer = HumanAnswer(question.id, "red", "a2")
    await run(bench, "", gate=ALLOW_ALL, answers=(answer,))  # the grant holds by now
    assert notes(tmp_path) == ["east red"]


@pytest.mark.parametrize(
    ("tool", "noted", "told"),
    [("prepay", ["paid"], "so its outcome is unknown"), ("survey", [], "answered. Make it again.")],
)
async def test_a_call_whose_server_asked_before_a_restart_does_not_begin_again(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path, tool: str, noted: list[str], told: str
) -> None:
    bench = await bench_of(make, server("old"))
    [question] = open_questions(await run(bench, script([call(f"mcp__old__{tool}")], text="painted")))
    await bench.agent.close()
    bench = await bench_of(make, server("old"))
    blocks = await run(bench, "", answers=(HumanAnswer(question.id, "red", "a1"),))
    assert open_questions(blocks) == []
    assert told in results(model)[-1]
    assert notes(tmp_path) == noted


class ApprovingPerson:
    """Approves at once, and answers other questions only when the turn has ended to wait for them."""

    def __init__(self) -> None:
        self.asked: list[Ask | Approve] = []
        self.thinks = asyncio.Event()

    async def ask(self, question: Ask | Approve, idle: asyncio.Future[None]) -> str | None:
        self.asked.append(question)
        if isinstance(question, Approve):
            return "Approve"
        self.thinks.set()
        await idle
        return None


async def test_a_call_in_a_task_is_approved_once_although_its_server_asks_after_the_other_tasks(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    person = ApprovingPerson()

    @tool_with(effect="none")
    async def hold() -> str:
        """Wait until the server has asked."""
        await person.thinks.wait()
        return "held"

    kinds = SubagentSettings(
        kinds=(
            KindSettings("painter", "Paints.", tools=("mcp__modern__paint",)),
            KindSettings("holder", "Waits.", tools=("hold",)),
        )
    )
    [task] = [each for each in make_tools(agent_settings(subagents=kinds), SERVICES) if each.name == "task"]
    bench = await make(mcp=McpConfig((server("modern"),)), tools=[task, hold], subagents=kinds)
    paint = script([call("mcp__modern__paint", wall="east")], text="painted")
    tasks = [
        call("task", description="paint", prompt=paint, kind="painter"),
        call("task", description="wait", prompt=script([call("hold")], text="waited"), kind="holder"),
    ]
    context = await bench.context()
    context.questions = person
    blocks = await bench.run(say(script(tasks, text="done")), context=context)
    [question] = open_questions(blocks)
    assert [type(each) for each in person.asked] == [Approve, Ask]
    await bench.database.run(lambda execute: execute("DELETE FROM ledger", {}))
    blocks = await run(bench, "", gate=RulePermissions(), answers=(HumanAnswer(question.id, "red", "a1"),))
    assert (end(blocks), [block for block in blocks if isinstance(block, Ask | Approve)]) == ("done", [])
    assert notes(tmp_path) == ["east red"]


async def test_nobody_is_asked_when_the_question_could_belong_to_two_calls(
    make: Workshop, model: FakeModel, server: Settings, tmp_path: Path
) -> None:
    bench = await bench_of(make, server("old"))
    await bench.agent._mcp.refresh()  # so that both calls begin at once
    blocks = await run(bench, script([call("mcp__old__paint_two"), call("mcp__old__paint_two")], text="hm"))
    assert open_questions(blocks) == []
    assert notes(tmp_path) == ['["cancel", null]'] * 2


@pytest.mark.skipif(not EVERYTHING.exists() or not shutil.which("node"), reason="needs Node.js: make dev")
async def test_the_reference_server_from_npm_works(make: Workshop, model: FakeModel) -> None:
    settings = McpServerSettings("everything", command="node", args=(str(EVERYTHING), "stdio"))
    bench = await bench_of(make, settings)
    calls = [call("mcp__everything__echo", message="你好"), call("mcp__everything__get-tiny-image")]
    await run(bench, script([call("tool_search", query="echo image")], calls, text="done"))
    echo, image = results(model)[-2:]
    assert "你好" in echo
    assert "[image/png, " in image
    blocks = await run(bench, script([call("mcp__everything__trigger-elicitation-request")], text="x"), key="m2")
    [question] = open_questions(blocks)
    assert question.question.startswith("The server “everything” asks: ")
    await run(bench, "", answers=(HumanAnswer(question.id, "Decline", "a1"),))
    assert "declin" in results(model)[-1]
