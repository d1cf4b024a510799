"""Outbound network access: one HTTP proxy per conversation.

A sandbox has no network of its own, in any mode: what it may reach, it reaches through here, where the thread is known
and where it is written down what was asked and refused. A provider opens the folder when it starts a machine, binds it
read-only at `/run/fawn`, gives commands `NetworkRules.environment()`, and closes it with the machine. The folder of a
key is always the same one, so that a machine that outlived the service is served again once the folder is opened.

The other way round, to a port inside, goes through the same socket: the command server is asked to connect it with that
port (`dial`), so that the host never opens anything of the tenant's.
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
from typing import Any, Protocol

from sandbox.base import SandboxError, SandboxGone
from sandbox.disk.removal import remove_tree
from sandbox.network.proxy import EgressProxy, Ends, Resolve, resolve_name
from sandbox.network.rules import CA_FILE, SOCKET_FOLDER, SOCKET_NAME, EgressPolicy, NetworkRules

DIAL_SECONDS = 15.0


class TicketDialer(Protocol):
    """A machine that can connect one of its ports with a unix socket; `ticket` is what it says there first."""

    async def dial(self, port: int, socket: str, ticket: str) -> None:
        """Until the connection ends. Raises SandboxError when nothing listens there."""


class EgressService:
    """The proxies of all threads. `place` is a folder of ours, which is made with the first one."""

    def __init__(self, rules: NetworkRules, place: Path, resolve: Resolve = resolve_name) -> None:
        self._rules, self._place, self._resolve = rules, place, resolve
        self._guard = EgressPolicy(rules)
        self._proxies: dict[str, EgressProxy] = {}
        self._lock = asyncio.Lock()

    async def open(self, key: str, owner: int | None = None) -> Path:
        """The folder to bind for `key`, its proxy listening. Open already: the same. With an `owner`, that user can get
        there without being given the folder by root."""
        folder = self._proxy_folder(key)
        async with self._lock:
            if key not in self._proxies:
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                proxy = EgressProxy(key, self._guard, self._rules.proxy, self._resolve)
                try:
                    await asyncio.to_thread(self._prepare_folder, folder, owner, listener)
                    await proxy.start(listener)
                except BaseException:  # cancelled, too
                    listener.close()
                    raise
                self._proxies[key] = proxy
        return folder

    @asynccontextmanager
    async def dial(self, key: str, machine: TicketDialer, port: int) -> AsyncIterator[Ends]:
        """A connection to a port on the loopback of `machine`, the one of `key`. Raises SandboxError when nothing
        listens there."""
        if not (proxy := self._proxies.get(key)):
            raise SandboxGone("The sandbox has stopped.")
        ticket = secrets.token_hex(16)
        arrived = proxy.expect_ticket(ticket)
        dialling = asyncio.create_task(machine.dial(port, f"{SOCKET_FOLDER}/{SOCKET_NAME}", ticket), name=f"dial:{key}")
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
                arrived.result()[1].transport.abort()  # nobody inside delays it by not reading
            dialling.cancel()
            await asyncio.wait({dialling})

    async def close(self, key: str) -> None:
        """The machine of `key` is gone: end its connections, remove its folder."""
        async with self._lock:
            if proxy := self._proxies.pop(key, None):
                await proxy.aclose()
                await asyncio.to_thread(remove_tree, self._proxy_folder(key))

    async def aclose(self) -> None:
        """Stop serving. The folders stay: machines that outlive the service have them bound."""
        async with self._lock:
            proxies, self._proxies = self._proxies, {}
            for proxy in proxies.values():
                await proxy.aclose()

    def _proxy_folder(self, key: str) -> Path:
        return self._place.absolute() / hashlib.sha256(key.encode()).hexdigest()[:24]

    def _prepare_folder(self, folder: Path, owner: int | None, listener: socket.socket) -> None:
        """Make the folder, and listen in it where everybody who sees the folder may connect, which nobody else of this
        machine does."""
        self._place.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        self._place.chmod(0o700 if owner is None else 0o711)
        folder.chmod(0o755 if owner is None else 0o500)
        if owner is not None:
            os.chown(folder, owner, owner)
        if self._rules.ca_file:
            (folder / CA_FILE).write_bytes(_certificate_bundle(self._rules.ca_file))
            (folder / CA_FILE).chmod(0o644)
        new = f"{SOCKET_NAME}-{secrets.token_hex(4)}"  # put in the old one's place: two may come at once
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{handle}/{new}")  # a socket's path ends at 107 bytes, ours may be longer
        finally:
            os.close(handle)
        (folder / new).chmod(0o666)
        listener.listen(64)
        (folder / new).replace(folder / SOCKET_NAME)


def _certificate_bundle(own: str) -> bytes:
    """This machine's certificates of authorities, and the operator's: tools take one file for all they trust."""
    places = map(Path, (ssl.get_default_verify_paths().openssl_cafile, "/etc/ssl/certs/ca-certificates.crt"))
    known = next((place.read_bytes() for place in places if place.is_file()), b"")
    return known.rstrip() + b"\n" + Path(own).read_bytes()


__all__ = ["EgressService", "NetworkRules"]
