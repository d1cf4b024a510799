"""Carry connections over one byte stream, where a sandbox and the host share no unix socket.

Inside the sandbox, the tunnel listens on a unix socket, like the host's proxy elsewhere; on the host it connects each
connection to the proxy's socket. A frame is its kind, the connection's number and a size, then so many bytes. A side
sends at most `WINDOW` bytes that the other has not passed on yet, so a slow connection delays no other one.

Both sides run this module: `main` inside, `Tunnel` on the host, which trusts nothing that arrives. Standard library
only, Python 3.9+.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from sandbox.inside.jobs import prctl

PR_SET_DUMPABLE = 4  # of prctl
HEADER = struct.Struct(">BII")
HELLO, OPEN, DATA, END, CLOSE, PASSED = range(6)
WINDOW = 1 << 18
CHUNK_BYTES = 1 << 15
LATE_BYTES = 1 << 28
MAX_CONNECTIONS = 32  # of one sandbox: each takes two descriptors of the host, the tunnel's and the proxy's

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]
Connect = Callable[[], Awaitable["tuple[asyncio.StreamReader, asyncio.StreamWriter]"]]


class _Connection:
    """A connection of the tunnel. `credit` is how much may be sent; `held` how much arrived and was not passed on."""

    def __init__(self) -> None:
        self.credit, self.held = WINDOW, 0
        self.more = asyncio.Event()
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None


class Tunnel:
    """One end. `read` returns b"" at the end of the stream; `connect` answers what the other end opens."""

    def __init__(self, read: Read, write: Write, connect: Connect | None = None) -> None:
        self._read, self._write, self._connect = read, write, connect
        self._connections: dict[int, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0
        self._late = WINDOW  # bytes that may still arrive for connections that have ended here
        self.ready = asyncio.Event()

    async def serve(self) -> None:
        """Carry until the stream ends. Raises ValueError if the other end breaks the protocol."""
        waiting = bytearray()
        try:
            while data := await self._read():
                waiting += data
                while len(waiting) >= HEADER.size:
                    kind, number, size = HEADER.unpack_from(waiting)
                    length = size if kind == DATA else 0
                    if length > CHUNK_BYTES:
                        raise ValueError(f"a frame of {length} bytes")
                    if len(waiting) < HEADER.size + length:
                        break
                    self._handle_frame(kind, number, size, bytes(waiting[HEADER.size : HEADER.size + length]))
                    del waiting[: HEADER.size + length]
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection that was made here."""
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._last += 1
        number, connection = self._last, _Connection()
        self._connections[number] = connection
        await self._send(OPEN, number)
        self._start(number, self._carry(number, connection, reader, writer))

    def _handle_frame(self, kind: int, number: int, size: int, data: bytes) -> None:
        connection = self._connections.get(number)
        if kind == HELLO and not self.ready.is_set():
            self.ready.set()
        elif kind == OPEN and self._connect and connection is None and len(self._connections) < MAX_CONNECTIONS:
            connection = self._connections[number] = _Connection()
            self._start(number, self._open(number, connection, self._connect))
        elif kind in (HELLO, OPEN):
            raise ValueError("an unexpected connection")
        elif connection is None:  # it has just ended here
            self._late -= max(1, size)
            if self._late < 0:
                raise ValueError("frames of no connection")
        elif kind in (DATA, END):
            connection.held += len(data)
            if connection.held > WINDOW:
                raise ValueError("more data than was allowed")
            connection.incoming.put_nowait(data)
        elif kind == PASSED:
            connection.credit = min(WINDOW, connection.credit + size)
            connection.more.set()
        elif kind == CLOSE and connection.task:
            connection.task.cancel()

    async def _open(self, number: int, connection: _Connection, connect: Connect) -> None:
        try:
            reader, writer = await connect()
        except OSError:
            await self._send(CLOSE, number)
            return
        await self._carry(number, connection, reader, writer)

    async def _carry(
        self, number: int, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry both ways until both ends have closed."""
        ways = [
            asyncio.ensure_future(self._carry_out(number, connection, reader)),
            asyncio.ensure_future(self._carry_in(number, connection, writer)),
        ]
        try:
            await asyncio.gather(*ways)
        except OSError:
            pass  # the peer has gone
        finally:
            for way in ways:
                way.cancel()
            writer.transport.abort() if any(way.cancelled() for way in ways) else writer.close()
            with contextlib.suppress(OSError):
                await self._send(CLOSE, number)

    async def _carry_out(self, number: int, connection: _Connection, reader: asyncio.StreamReader) -> None:
        while True:
            while connection.credit <= 0:
                connection.more.clear()
                await connection.more.wait()
            data = await reader.read(min(CHUNK_BYTES, connection.credit))
            if not data:
                await self._send(END, number)
                return
            connection.credit -= len(data)
            await self._send(DATA, number, data)

    async def _carry_in(self, number: int, connection: _Connection, writer: asyncio.StreamWriter) -> None:
        while data := await connection.incoming.get():
            writer.write(data)
            await writer.drain()
            connection.held -= len(data)
            await self._write(HEADER.pack(PASSED, number, len(data)))
        with contextlib.suppress(OSError):
            writer.write_eof()

    async def _send(self, kind: int, number: int, data: bytes = b"") -> None:
        await self._write(HEADER.pack(kind, number, len(data)) + data)

    def _start(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._connections.pop(number, None)
            self._late = min(LATE_BYTES, self._late + 2 * WINDOW + 2)  # data, what was passed on, and both ends

        task = self._connections[number].task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(ended)


async def _serve_socket(path: str, sink: int) -> None:
    loop = asyncio.get_event_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(sink, "wb", 0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    tunnel = Tunnel(lambda: reader.read(CHUNK_BYTES), write)
    await asyncio.start_unix_server(tunnel.accept, path)
    os.chmod(path, 0o666)  # noqa: S103  every user of this sandbox may use it
    await write(HEADER.pack(HELLO, 0, 0))
    await tunnel.serve()


def main(path: str, files: Mapping[str, bytes]) -> None:
    """Write `files`, and listen at `path` for connections that stdin and stdout carry."""
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # commands may not read this process's memory or descriptors
    sink = os.dup(1)
    os.dup2(2, 1)  # a stray print must not corrupt the stream
    for name, content in files.items():
        with open(name, "wb") as file:
            file.write(content)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    asyncio.run(_serve_socket(path, sink))
