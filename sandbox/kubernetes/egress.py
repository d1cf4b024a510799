"""The way from a pod to its conversation's proxy: a tunnel over an exec, so the pod needs no network."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.base import SandboxGone, StreamPair
from sandbox.inside.tunnel import Tunnel
from sandbox.kubernetes.stream import PodExecStream
from sandbox.rules import CA_FILE, SOCKET_FOLDER, SOCKET_NAME
from sandbox.wire.connection import SERVER_DIED, call_source, prefix_size

TUNNEL_MODULES = ("search", "relay", "jobs", "tunnel")  # each after its imports
log = logging.getLogger(__name__)


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
