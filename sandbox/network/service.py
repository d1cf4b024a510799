"""Outbound network access: one HTTP proxy per conversation.

A sandbox never has a network of its own. Its requests go through this proxy, which knows the conversation and logs
what was asked and refused. A provider opens the proxy's folder, mounts it read-only at `/run/fawn`, sets
`NetworkRules.environment()` for commands, and closes the proxy with the sandbox. The folder of a key stays the same,
so a sandbox that outlives the service works again once the folder is opened.

Connections to a port inside use the same socket: the command server connects it with that port (`dial`), so the host
never opens anything that a command controls.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from catalogue import N_
from sandbox.base import SandboxError, SandboxGone, StreamPair
from sandbox.disk.folders import remove_tree
from sandbox.network.proxy import EgressProxy, Resolve, resolve_name
from sandbox.rules import CA_FILE, SOCKET_FOLDER, SOCKET_NAME, EgressPolicy, NetworkRules, ReportEgress, report_nothing
from sandbox.wire.client import StreamSandbox

DIAL_SECONDS = 15.0


class EgressService:
    """The proxies of all conversations, in folders below `place`."""

    def __init__(
        self,
        rules: NetworkRules,
        place: Path,
        resolve: Resolve = resolve_name,
        report: ReportEgress = report_nothing,
    ) -> None:
        self._report = report
        self._rules, self._root, self._resolve = rules, place, resolve
        self._policy = EgressPolicy(rules)
        self._proxies: dict[str, EgressProxy] = {}
        self._lock = asyncio.Lock()

    async def open_proxy(self, key: str, owner: int | None = None) -> Path:
        """Start the proxy of `key` once. Returns the folder to mount, which `owner` can open."""
        folder = self._proxy_folder(key)
        async with self._lock:
            if key not in self._proxies:
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                proxy = EgressProxy(key, self._policy, self._rules.proxy, self._resolve, self._report)
                try:
                    await asyncio.to_thread(self._prepare_folder, folder, owner, listener)
                    await proxy.start(listener)
                except BaseException:  # includes a cancellation
                    listener.close()
                    raise
                self._proxies[key] = proxy
        return folder

    @asynccontextmanager
    async def dial(self, key: str, sandbox: StreamSandbox, port: int) -> AsyncIterator[StreamPair]:
        """Connect to a port of the sandbox of `key`. Raises SandboxError if nothing listens there."""
        if not (proxy := self._proxies.get(key)):
            raise SandboxGone(N_("The sandbox has stopped."))
        ticket = secrets.token_hex(16)
        arrived = proxy.expect_ticket(ticket)
        dialling = asyncio.create_task(sandbox.dial(port, f"{SOCKET_FOLDER}/{SOCKET_NAME}", ticket), name=f"dial:{key}")
        try:
            first: set[asyncio.Future[Any]] = {arrived, dialling}  # of two types
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED, timeout=DIAL_SECONDS)
            if not arrived.done():
                if dialling.done():
                    dialling.result()
                raise SandboxError(f"Port {port} of the sandbox does not answer.")
            yield arrived.result()
        finally:
            proxy.forget_ticket(ticket)
            if not arrived.cancelled():
                arrived.result()[1].transport.abort()  # a slow reader inside must not delay this
            dialling.cancel()
            await asyncio.wait({dialling})

    async def close_proxy(self, key: str) -> None:
        """Close the connections of `key` and remove its folder, after its sandbox has ended."""
        async with self._lock:
            if proxy := self._proxies.pop(key, None):
                await proxy.aclose()
                await asyncio.to_thread(remove_tree, self._proxy_folder(key))

    async def aclose(self) -> None:
        """Stop serving. The folders stay, because sandboxes that outlive the service have them mounted."""
        async with self._lock:
            proxies, self._proxies = self._proxies, {}
            for proxy in proxies.values():
                await proxy.aclose()

    def _proxy_folder(self, key: str) -> Path:
        return self._root.absolute() / hashlib.sha256(key.encode()).hexdigest()[:24]

    def _prepare_folder(self, folder: Path, owner: int | None, listener: socket.socket) -> None:
        """Make the folder and listen in it. The socket is open to all users, but only this sandbox sees the folder."""
        self._root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        self._root.chmod(0o700 if owner is None else 0o711)
        folder.chmod(0o755 if owner is None else 0o500)
        if owner is not None:
            os.chown(folder, owner, owner)
        if self._rules.ca_file:
            (folder / CA_FILE).write_bytes(_certificate_bundle(self._rules.ca_file))
            (folder / CA_FILE).chmod(0o644)
        new = f"{SOCKET_NAME}-{secrets.token_hex(4)}"  # renamed later: two services may open the folder at once
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{handle}/{new}")  # a socket's path ends at 107 bytes
        finally:
            os.close(handle)
        (folder / new).chmod(0o666)
        listener.listen(64)
        (folder / new).replace(folder / SOCKET_NAME)


def _certificate_bundle(own: str) -> bytes:
    """Combine this machine's certificate authorities with the operator's: tools read one file."""
    places = map(Path, (ssl.get_default_verify_paths().openssl_cafile, "/etc/ssl/certs/ca-certificates.crt"))
    known = next((place.read_bytes() for place in places if place.is_file()), b"")
    return known.rstrip() + b"\n" + Path(own).read_bytes()
