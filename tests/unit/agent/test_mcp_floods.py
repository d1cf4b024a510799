"""A server that sends too much ends its own call: neither the event loop nor another server waits for it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agent.mcp.bounds import MAX_VALUES, ValueCount
from agent.mcp.connection import McpCallLost, McpConnection, McpRefused
from agent.settings.mcp import McpServerSettings
from tests.fakes.mcp_http import McpHttpServer
from tests.fakes.server import until
from tests.support.forked_services import python
from tests.support.growth import many_steps_seconds

pytestmark = pytest.mark.slow
FAKES = Path(__file__).parents[2] / "fakes"
MAX_GROWTH_BYTES = 150 << 20
NOTIFICATIONS = 10_000  # over HTTP

Connect = Callable[[McpServerSettings], McpConnection]


@cache
def packed() -> bytes:
    """Return 64 MB in a few bytes; made by the tests that need it, not in every worker that collects them."""
    return gzip.compress(b" " * (64 << 20))


class Strain:
    """What work costs the event loop: its longest stall in seconds of the processor, and memory."""

    def __init__(self) -> None:
        self.stall, self.growth = 0.0, 0

    async def watch(self) -> None:
        before = _resident_bytes()
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            self.stall = max(self.stall, time.thread_time() - began)
            self.growth = max(self.growth, _resident_bytes() - before)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def strained() -> AsyncIterator[Strain]:
    strain = Strain()
    task = asyncio.create_task(strain.watch())
    try:
        yield strain
    finally:
        task.cancel()
    assert strain.stall < many_steps_seconds()
    assert strain.growth < MAX_GROWTH_BYTES


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        def make(settings: McpServerSettings) -> McpConnection:
            connection = McpConnection(settings)
            stack.push_async_callback(connection.close)
            return connection

        yield make


@pytest.fixture
async def hostile(connect: Connect) -> McpConnection:
    return await _started(connect, "hostile")


@pytest.fixture
async def innocent(connect: Connect) -> McpConnection:
    return await _started(connect, "old")


async def _started(connect: Connect, kind: str) -> McpConnection:
    command, *words = python()
    program = str(FAKES / f"mcp_{kind}.py")
    settings = McpServerSettings(kind, command=command, args=(*words, program), start_seconds=60)
    connection = connect(settings)
    await connection.refresh()
    return connection


async def text_of(connection: McpConnection, tool: str) -> str:
    return str((await connection.request(tool, {})).result.content[0].text)


def children(name: str) -> list[int]:
    """Return the processes of this one whose command line contains a name."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in own if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


# ---------------------------------------------------------------- stdio


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        ("long_line", "it sent a message of more than 4 MB"),
        ("endless_line", "it sent a message of more than 4 MB"),
        ("many_values", "it sent a message with more than 25,?000 values"),
        ("many_requests", "it sent more than 50 requests at once"),
        ("many_odd_lines", "it wrote more than 1 MB that is no message"),
    ],
)
async def test_a_server_that_sends_too_much_is_ended_and_started_for_the_next_call(
    hostile: McpConnection, innocent: McpConnection, tool: str, fault: str
) -> None:
    [pid] = children("mcp_hostile")
    async with strained():
        flooded = asyncio.create_task(hostile.request(tool, {}))
        assert await text_of(innocent, "fetch") == "old"
        with pytest.raises(McpCallLost, match=fault):
            await flooded
    await until(lambda: pid not in children("mcp_hostile"), what="the end of the process")
    assert await text_of(hostile, "fetch") == "fetch"
    assert hostile.starts == 2


async def test_a_flood_that_nobody_hears_delays_only_its_own_call(
    hostile: McpConnection, innocent: McpConnection
) -> None:
    async with strained():
        flooded = asyncio.create_task(text_of(hostile, "many_notifications"))
        for _ in range(20):
            assert await text_of(innocent, "fetch") == "old"
        assert not flooded.done()
        assert await flooded == "flooded"
    assert hostile.starts == 1


async def test_a_large_text_is_read(hostile: McpConnection) -> None:
    async with strained():
        assert len(await text_of(hostile, "large_text")) == 200_000 * 13
    assert hostile.starts == 1


async def test_results_are_not_checked_by_the_patterns_of_their_server(hostile: McpConnection) -> None:
    async with strained():
        found = await hostile.request("slow_schema", {})
    assert found.result.structured_content == {"a": "a" * 40 + "!"}


# ---------------------------------------------------------------- HTTP


class HttpFlood(McpHttpServer):
    """Answers calls with the flood that their tool names, and counts what it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    async def _call(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]  # it streams
        message = await request.json()
        if message.get("method") != "tools/call":
            return await super()._call(request)
        name = message["params"]["name"]
        headers = {"Content-Type": "application/json" if "json" in name else "text/event-stream"}
        headers |= {"Content-Encoding": "gzip"} if "packed" in name else {}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in self._pieces(name, message["id"]):
            await response.write(piece)
            self.written += len(piece)
        return response

    def _pieces(self, name: str, id: Any) -> list[bytes]:
        start = b"" if "json" in name else b"data: "
        answer = {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "flooded"}]}}
        if name.startswith("long"):
            return [start, *[b"x" * 65_536] * 800]
        if name.startswith("values"):
            return [start, b'{"jsonrpc": "2.0", "id": 1, "result": {"a": [', b"[]," * 1_000_000, b"[]]}}\n\n"]
        if name.startswith("packed"):
            return [packed()]
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        event = b"data: " + json.dumps(note).encode() + b"\n\n"
        return [event * NOTIFICATIONS, start + json.dumps(answer).encode() + b"\n\n"]


@pytest.fixture
async def flood() -> AsyncIterator[HttpFlood]:
    packed()  # before anything is measured
    async with HttpFlood() as server:
        yield server


@pytest.mark.parametrize("kind", ["json", "sse"])
@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        ("long", "it sent a message of more than 4 MB"),
        ("values", "it sent a message with more than 25,?000 values"),
        ("packed", "it sent a compressed message"),
    ],
)
async def test_what_a_server_answers_over_http_has_the_same_bounds(
    connect: Connect, flood: HttpFlood, innocent: McpConnection, tool: str, fault: str, kind: str
) -> None:
    connection = connect(McpServerSettings("flood", url=f"{flood.base_url}/mcp", start_seconds=60))
    await connection.refresh()
    async with strained():
        flooded = asyncio.create_task(connection.request(f"{tool}_{kind}", {}))
        assert await text_of(innocent, "fetch") == "old"
        with pytest.raises((McpRefused, McpCallLost), match=fault):
            await flooded
    assert flood.written < 16 << 20, "what the kernel's buffers took, and no more"
    await connection.refresh()


async def test_a_flood_of_events_delays_only_its_own_call(
    connect: Connect, flood: HttpFlood, innocent: McpConnection
) -> None:
    connection = connect(McpServerSettings("flood", url=f"{flood.base_url}/mcp", start_seconds=60))
    await connection.refresh()
    async with strained():
        flooded = asyncio.create_task(text_of(connection, "notifications"))
        for _ in range(20):
            assert await text_of(innocent, "fetch") == "old"
        assert not flooded.done()
        assert await flooded == "flooded"


# ---------------------------------------------------------------- counting


@given(
    st.recursive(
        st.none() | st.text(st.sampled_from('a\\",:[]{}\n\ré😀')),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('a"\\:')), inner, max_size=4)
        ),
    ),
    st.integers(1, 9),
)
def test_values_are_counted_across_any_pieces(value: Any, size: int) -> None:
    def marks(each: Any) -> int:
        if isinstance(each, list):
            return 1 + max(0, len(each) - 1) + sum(map(marks, each))
        if isinstance(each, dict):
            return 1 + max(0, len(each) - 1) + len(each) + sum(map(marks, each.values()))
        return 0

    text, count = json.dumps(value, ensure_ascii=False).encode(), ValueCount()
    for start in range(0, len(text), size):
        count.add(text[start : start + size])
    assert count.values == marks(value)


def test_text_that_is_no_json_hides_no_values() -> None:
    count = ValueCount()
    for piece in (b': "\n', b"data: " + b"[[]," * MAX_VALUES, b'\r"', b'\n"\\'):
        count.add(piece)
    assert count.values > MAX_VALUES
