"""The streams of a program in a pod: the exec protocol over a WebSocket.

The first byte of a frame is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the status at the end, as JSON
(k8s.io/apimachinery/pkg/util/remotecommand). A program outlives its connection, so whoever closes one ends the pod.

The way from a pod to its conversation's proxy: a tunnel over an exec, so the pod needs no network.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from catalogue import LazyText
from sandbox.base import SandboxGone, StreamPair
from sandbox.inside.tunnel import Tunnel
from sandbox.rules import CA_FILE, SOCKET_FOLDER, SOCKET_NAME
from sandbox.wire.connection import SERVER_DIED, call_source, prefix_size

log = logging.getLogger(__name__)

STDIN, STDOUT, STDERR, STATUS = range(4)
STDOUT_BYTE = bytes((STDOUT,))
CHUNK_BYTES = 32 << 10  # what the kubelet reads at once
BUFFER_BYTES = 1 << 20  # of data to be sent
MAX_OTHER_BYTES = 1 << 20  # that arrive and are no stdout: programs of ours print next to nothing on stderr
CLOSE_SECONDS = 2.0  # for the other end to agree to the end of a connection
FRAME_COST = 64  # bytes that an empty frame counts as


class PodExecStream:
    """A `ByteStream` over the WebSocket of one exec. `status` is what the cluster said at the end."""

    def __init__(self, socket: Any, name: str) -> None:
        self._socket, self._name = socket, name
        self._outgoing: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()  # there is data to send
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._other_bytes = 0
        self.stderr, self.status = "", b""
        self._sender = asyncio.create_task(self._send(), name=f"exec-send:{name}")

    async def read(self) -> bytes:
        """See `ByteStream.read`. Raises ValueError if the other end breaks the protocol."""
        import aiohttp

        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                raise ValueError("text instead of bytes")
            if message.type is not aiohttp.WSMsgType.BINARY:
                self._closed = True
                self._room.set()
                return b""
            data: bytes = message.data
            if data[:1] == STDOUT_BYTE and len(data) > 1:  # an empty frame of each channel comes first
                return data[1:]
            self._other_bytes += len(data) + FRAME_COST
            if self._other_bytes > MAX_OTHER_BYTES:
                raise ValueError("too much that is no output")
            if not data:
                continue
            if data[0] == STDERR:
                self.stderr = (self.stderr + data[1:].decode("utf-8", "replace"))[:2000]
            elif data[0] == STATUS:
                self.status = data[1:4096]

    async def write(self, data: bytes) -> None:
        """See `ByteStream.write`: what is buffered is sent, whoever is cancelled."""
        if self._closed:
            raise BrokenPipeError("the stream is closed")
        self._outgoing.append(data)
        self._waiting_bytes += len(data)
        self._changed.set()
        if self._waiting_bytes > BUFFER_BYTES:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            raise BrokenPipeError("the stream is closed")

    async def _send(self) -> None:
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._outgoing:
                    data = memoryview(self._outgoing.popleft())
                    for at in range(0, len(data), CHUNK_BYTES):
                        await self._socket.send_bytes(bytes((STDIN,)) + bytes(data[at : at + CHUNK_BYTES]))
                    self._waiting_bytes -= len(data)
                    if self._waiting_bytes <= BUFFER_BYTES:
                        self._room.set()
        except (OSError, RuntimeError) as error:  # RuntimeError: aiohttp's word for a socket that is closing
            log.debug("exec.send name=%s reason=%s", self._name, error)
            self._closed = True
            self._room.set()

    async def close(self) -> None:
        self._closed = True
        self._room.set()
        self._sender.cancel()
        await asyncio.wait([self._sender])
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):  # aiohttp waits again for each message that still arrives
                await self._socket.close()


class PodStream(PodExecStream):
    """The command server's stream. `explain` says why it ended, `release` ends the pod and what belongs to it."""

    def __init__(
        self, socket: Any, name: str, explain: Callable[[], Awaitable[LazyText]], release: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(socket, name)
        self._explain, self._release = explain, release
        self._ended = False
        self._ending: asyncio.Task[None] | None = None
        self.releases = False  # set after the start, so that a failed start can be examined

    async def read(self) -> bytes:
        """See `ByteStream.read`. Raises SandboxGone with the reason if the pod ended."""
        data = await super().read()
        if not data and not self._ended:
            raise SandboxGone(await self._explain())
        return data

    def end(self) -> None:
        """End the stream, because its pod has ended: a lost node leaves it open."""
        if not self._ended and self._ending is None:
            self._ending = asyncio.create_task(super().close(), name=f"exec-end:{self._name}")

    async def close(self) -> None:
        self._ended = True
        await super().close()
        if self.releases:
            self.releases = False
            await self._release()


TUNNEL_MODULES = ("text_encoding", "packed", "search", "relay", "jobs", "tunnel")  # each after its imports


class EgressTunnel:
    """The host's end. `folder` is that of the proxy; its certificates are copied into the pod."""

    def __init__(self, socket: Any, name: str, folder: Path) -> None:
        self._stream, self._name, self._folder = PodExecStream(socket, f"tunnel:{name}"), name, folder
        self._tunnel = Tunnel(self._stream.read, self._stream.write, self._connect)
        self._serving = asyncio.create_task(self._serve(), name=f"tunnel:{name}")

    async def start(self) -> None:
        """Start the other end, and wait until it listens. Raises SandboxGone."""
        source = await asyncio.to_thread(self._source)
        try:
            await self._stream.write(prefix_size(source))
        except OSError as error:
            raise SandboxGone(SERVER_DIED) from error
        ready = asyncio.create_task(self._tunnel.ready.wait(), name=f"tunnel-ready:{self._name}")
        await asyncio.wait([ready, self._serving], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._tunnel.ready.is_set():
            raise SandboxGone(SERVER_DIED)

    @property
    def stderr(self) -> str:
        """What the other end complained about."""
        return self._stream.stderr

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this when the tunnel ends: without it the sandbox has no way out."""
        self._serving.add_done_callback(lambda _: call())

    def assign(self, folder: Path) -> None:
        """Carry connections to another proxy from now on: that of the conversation that claimed the pod."""
        self._folder = folder

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.wait([self._serving])
        await self._stream.close()

    async def _connect(self) -> StreamPair:
        """Connect to the proxy. Raises OSError."""
        handle = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            return await asyncio.open_unix_connection(
                f"/proc/self/fd/{handle}/{SOCKET_NAME}"
            )  # a path ends at 107 bytes
        finally:
            os.close(handle)

    def _source(self) -> bytes:
        certificates = self._folder / CA_FILE
        files = {f"{SOCKET_FOLDER}/{CA_FILE}": certificates.read_bytes()} if certificates.is_file() else {}
        return call_source(TUNNEL_MODULES, f"main({f'{SOCKET_FOLDER}/{SOCKET_NAME}'!r}, {files!r})")

    async def _serve(self) -> None:
        try:
            await self._tunnel.serve()
        except (OSError, ValueError) as error:
            log.warning("tunnel.failed reason=%s", error, extra={"sandbox": self._name})
