"""The byte stream to the command server in a container."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

from catalogue import N_, LazyText, join_lazily
from sandbox.base import SandboxError, SandboxGone
from sandbox.docker.client import DockerEngine, NotInEngine
from sandbox.wire.connection import FILES_INTACT, SERVER_DIED, write_all

log = logging.getLogger(__name__)

INSPECT_SECONDS = 5.0


async def wrap_socket(connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection.setblocking(False)
    unix = connection.family == socket.AF_UNIX
    return await (asyncio.open_unix_connection if unix else asyncio.open_connection)(sock=connection, limit=1 << 18)


class ExecStream:
    """A `ByteStream` over `DockerEngine.open_exec`. A frame header is the kind (1 stdout, 2 stderr), three zero bytes
    and the size (docs.docker.com/reference/api/engine, "attach to a container")."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._kind, self._left = 0, 0
        self.stderr = ""

    async def read(self) -> bytes:
        while True:
            while not self._left:
                try:
                    head = await self._reader.readexactly(8)
                except asyncio.IncompleteReadError:
                    return b""
                self._kind, self._left = head[0], int.from_bytes(head[4:])
            data = await self._reader.read(min(self._left, 1 << 16))
            if not data:
                return b""
            self._left -= len(data)
            if self._kind == 1:
                return data
            self.stderr = (self.stderr + data.decode("utf-8", "replace"))[:2000]

    async def write(self, data: bytes) -> None:
        await write_all(self._writer, data)

    async def close(self) -> None:
        """Abort the connection. The program's foreground processes end with it."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class ContainerStream(ExecStream):
    """The stream of a container. `close` removes the container if `removes` is set."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: DockerEngine, container: str
    ) -> None:
        super().__init__(reader, writer)
        self._engine, self._container = engine, container
        self._closed = False
        self.removes = False  # set after the start, so that a failed start can be examined

    async def read(self) -> bytes:
        """See `ByteStream.read`. Raises SandboxGone with the reason if the container ended."""
        data = await super().read()
        if not data and not self._closed:
            raise SandboxGone(await self._ended_reason())
        return data

    async def _ended_reason(self) -> LazyText:
        try:
            async with asyncio.timeout(INSPECT_SECONDS):
                found = await self._engine.inspect_ended(self._container)
        except NotInEngine:
            return _gone(N_("The sandbox was removed from outside."))
        except (SandboxError, TimeoutError):
            return _gone(N_("The Docker engine stopped, and the sandbox with it."))
        if found.memory_ran_out:
            return _gone(N_("The sandbox ran out of memory and was stopped."))
        if not found.running:
            return _gone(N_("The sandbox's container was stopped from outside."))
        log.info("sandbox.ended said=%r", self.stderr[-300:])
        return SERVER_DIED

    async def close(self) -> None:
        self._closed = True
        await super().close()
        if not self.removes:
            return
        try:
            await self._engine.remove(self._container)
        except SandboxError as error:
            log.warning("sandbox.left container=%s reason=%s", self._container[:12], error)  # `reap` finds it


def _gone(sentence: str) -> LazyText:
    return join_lazily(LazyText(sentence), LazyText(FILES_INTACT))
