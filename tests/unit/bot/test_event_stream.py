"""Server-sent events: the heartbeat, and readers that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
from aiohttp import ClientPayloadError, ClientResponse, ClientSession, web

from bot.config.http import HttpConfig
from bot.database.database import StorageError
from bot.http.event_stream import EventStream, last_event_id, stream_events
from bot.http.listener import listening
from bot.http.route import Route
from tests.fakes.server import until
from tests.support.event_client import read_events


class Streams:
    """Streams that go on until the client leaves; `left` counts those that ended."""

    def __init__(self) -> None:
        self.left = 0
        self.asked: list[str] = []

    def routes(self) -> list[Route]:
        return [Route("GET", f"/{each}", getattr(self, f"_{each}")) for each in ("idle", "flood", "fault", "short")]

    async def _idle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(last_event_id(request))

        async def tell(stream: EventStream) -> None:
            with self._counted():
                await stream.send("first", {"n": 1}, "7")
                await stream.wait()

        return await stream_events(request, asyncio.Event(), tell, heartbeat_seconds=0.05)

    async def _flood(self, request: web.Request) -> web.StreamResponse:
        async def tell(stream: EventStream) -> None:
            with self._counted():
                for _ in range(1_000_000):
                    await stream.send("text", {"delta": "a" * 10_000})

        return await stream_events(request, asyncio.Event(), tell, write_seconds=0.2)

    async def _fault(self, request: web.Request) -> web.StreamResponse:
        async def tell(stream: EventStream) -> None:
            await stream.send("first", {})
            fail()

        return await stream_events(request, asyncio.Event(), tell)

    async def _short(self, request: web.Request) -> web.StreamResponse:
        async def tell(stream: EventStream) -> None:
            await stream.send("first", {})
            await stream.send("last", {"text": "é" * 1000})

        return await stream_events(request, asyncio.Event(), tell)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.left += 1


def fail() -> None:
    raise StorageError("disk full")


async def read_all(answer: ClientResponse) -> list[str]:
    return [event.name async for event in read_events(answer)]


@asynccontextmanager
async def served(streams: Streams) -> AsyncIterator[str]:
    async with listening(HttpConfig(listen="127.0.0.1:0"), streams.routes()) as address:
        yield address


async def test_silence_has_a_heartbeat_and_a_client_that_leaves_ends_its_stream() -> None:
    streams = Streams()
    async with served(streams) as address, ClientSession(address) as client:
        async with client.get("/idle", headers={"Last-Event-ID": "6"}) as answer:
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["X-Accel-Buffering"] == "no"
            seen = []
            async for event in read_events(answer):
                seen.append((event.name, event.id))
                if len(seen) == 3:
                    break
        assert seen == [("first", "7"), ("", ""), ("", "")]
        assert streams.asked == ["6"]
        await until(lambda: streams.left == 1, what="the end of the stream")


async def test_a_client_that_reads_nothing_is_cut_and_another_one_goes_on() -> None:
    streams = Streams()
    async with served(streams) as address, ClientSession(address) as client, client.get("/idle") as idle:
        reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        writer.write(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: streams.left == 1, what="the cut")
        with suppress(ConnectionError):  # or the end of what was sent
            while await reader.read(1 << 20):
                pass
        writer.close()
        async for event in read_events(idle):
            if not event.name:
                break


async def test_a_stream_that_cannot_go_on_is_cut_without_an_end() -> None:
    async with served(Streams()) as address, ClientSession(address) as client, client.get("/fault") as answer:
        with pytest.raises(ClientPayloadError):
            await read_all(answer)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_stream_ends_with_its_connection(version: str) -> None:
    async with served(Streams()) as address:
        answer = await ask(address, "GET", "/short", version)
    head, _blank, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/{version} 200".encode())
    assert (b"Transfer-Encoding: chunked" in head) is (version == "1.1")
    assert body.endswith(b"0\r\n\r\n" if version == "1.1" else b'"}\n\n')
    assert "é".encode() * 1000 in body


async def test_head_of_a_stream_has_no_body() -> None:
    streams = Streams()
    async with served(streams) as address:
        answer = await ask(address, "HEAD", "/idle", "1.1")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")
    assert streams.left == 0


async def test_the_end_of_the_listener_ends_its_streams() -> None:
    streams = Streams()
    async with served(streams) as address:
        reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        writer.write(b"GET /idle HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"event: first")
    assert streams.left == 1
    assert b"\r\n0\r\n\r\n" not in await reader.read()  # a client that waits for an end asks again
    writer.close()


async def ask(address: str, method: str, path: str, version: str) -> bytes:
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    writer.write(f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer
