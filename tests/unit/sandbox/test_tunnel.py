"""Connections over one byte stream: many at once, slow ones, and ends that break the rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.inside.tunnel import CLOSE, DATA, HEADER, HELLO, MAX_CONNECTIONS, OPEN, PASSED, WINDOW, Tunnel

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Pipe:
    """One direction of a byte stream, which counts what is in it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.total = 0

    async def read(self) -> bytes:
        return await self._queue.get()

    async def write(self, data: bytes) -> None:
        self.total += len(data)
        self._queue.put_nowait(data)


@asynccontextmanager
async def tunnel(folder: Path, answer: Answer) -> AsyncIterator[str]:
    """Yield a socket whose connections `answer` gets at the other end."""
    there, here = str(folder / "there"), str(folder / "here")
    up, down = Pipe(), Pipe()

    async def connect() -> Streams:
        return await asyncio.open_unix_connection(there)

    inner, outer = Tunnel(down.read, up.write), Tunnel(up.read, down.write, connect)
    server = await asyncio.start_unix_server(answer, there)
    door = await asyncio.start_unix_server(inner.accept, here)
    tasks = [asyncio.create_task(end.serve()) for end in (inner, outer)]
    try:
        yield here
    finally:
        door.close()
        server.close()
        await up.write(b"")
        await down.write(b"")
        await asyncio.gather(*tasks)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(path: str, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    received = await reader.read()
    await sending
    writer.close()
    return received


async def test_many_connections_carry_both_ways_and_end(tmp_path: Path) -> None:
    async with tunnel(tmp_path, echo) as path:
        sent = [bytes([number]) * (WINDOW * 3 + number) for number in range(20)]
        assert await asyncio.gather(*(exchange(path, data) for data in sent)) == sent
        # The places of connections that ended are free again.
        for _ in range(MAX_CONNECTIONS + 5):
            assert await exchange(path, b"x") == b"x"


async def test_a_connection_that_nobody_reads_delays_no_other(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1) == b"s":
            await over.wait()  # reads no more
        writer.write(b"quick")
        writer.close()

    async with tunnel(tmp_path, answer) as path:
        _, stuck = await asyncio.open_unix_connection(path)
        stuck.write(b"s" * (WINDOW * 8))
        for _ in range(3):
            assert await exchange(path, b"q") == b"quick"
        stuck.transport.abort()
        assert await exchange(path, b"q") == b"quick"
        over.set()


async def test_a_peer_that_cannot_be_reached_closes_the_connection(tmp_path: Path) -> None:
    async with tunnel(tmp_path, echo) as path:
        (tmp_path / "there").unlink()
        assert await exchange(path, b"") == b""


@pytest.mark.parametrize(
    "frames",
    [
        HEADER.pack(DATA, 1, 1 << 20),
        HEADER.pack(OPEN, 1, 0) + HEADER.pack(OPEN, 1, 0),
        HEADER.pack(OPEN, 1, 0) + (HEADER.pack(DATA, 1, 1 << 15) + bytes(1 << 15)) * (WINDOW // (1 << 15) + 1),
        b"".join(HEADER.pack(OPEN, number, 0) for number in range(MAX_CONNECTIONS + 1)),
        HEADER.pack(HELLO, 0, 0) * 2,
        HEADER.pack(PASSED, 7, 1 << 15) * 9,
        HEADER.pack(CLOSE, 7, 0) * (WINDOW + 1),
    ],
    ids=["frame too long", "number in use", "beyond the window", "too many", "two hellos", "of no connection", "ends"],
)
async def test_an_end_that_breaks_the_rules_ends_the_tunnel(frames: bytes) -> None:
    stream, out = Pipe(), Pipe()

    async def connect() -> Streams:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    await stream.write(frames)
    with pytest.raises(ValueError, match=r"frame of|unexpected connection|more data|no connection"):
        await Tunnel(stream.read, out.write, connect).serve()


async def test_what_is_not_known_any_more_is_ignored() -> None:
    stream, out = Pipe(), Pipe()
    await stream.write(HEADER.pack(DATA, 7, 3) + b"abc" + HEADER.pack(CLOSE, 7, 0))
    await stream.write(b"")
    await Tunnel(stream.read, out.write).serve()
    assert out.total == 0
