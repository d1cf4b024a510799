"""Tokens of people who signed in to MCP servers with a browser: one file for each server, below data_dir."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from agent.settings.mcp import McpServerSettings
from sandbox.disk.sealing import NO_SEAL, NotOpened, Sealer

log = logging.getLogger(__name__)

TOKENS_FOLDER = "mcp"  # in data_dir
LEEWAY_SECONDS = 10.0  # before its expiry, in which a token is renewed
LOCK_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, repr=False)
class StoredTokens:
    """What one sign-in left, and what its renewal needs. Without `access_token` the sign-in has ended."""

    url: str  # of the MCP server: the tokens go nowhere else
    token_endpoint: str
    resource: str  # the `resource` of RFC 8707; "": not sent
    client_id: str
    client_secret: str  # "" for a public client, and for one of the configuration, which has its secret
    auth_method: str  # how the client authenticates at the token endpoint
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float = 0.0  # Unix time; 0: unknown

    @property
    def is_fresh(self) -> bool:
        """Whether the access token can be sent, as far as this clock knows."""
        return bool(self.access_token) and (not self.expires_at or time.time() < self.expires_at - LEEWAY_SECONDS)

    def ended(self) -> StoredTokens:
        """Return them without the tokens."""
        return replace(self, access_token="", refresh_token="", expires_at=0.0)


class TokenExchange(Protocol):
    """Shares tokens with services that have folders of their own."""

    def exchanged(self, file: TokenFile) -> AbstractAsyncContextManager[None]:
        """Keep the others from changing a file, which is as they have it, and give them what it is afterwards.

        Raises OSError.
        """


@dataclass(frozen=True, slots=True)
class TokenFolder:
    """Where the tokens of all servers are, what seals them, and who else has them.

    `renews` is whether this process may renew them: one without an exchange, where others have them, may not.
    """

    data_dir: Path
    sealer: Sealer = NO_SEAL
    exchange: TokenExchange | None = None
    renews: bool = True


class TokenFile:
    """The tokens of one server. Services and commands share it: who changes it holds its lock and reads it again, so
    that no two renewals use the same refresh token."""

    def __init__(self, folder: TokenFolder, server: McpServerSettings) -> None:
        self._sealer, self._purpose = folder.sealer, f"mcp:{server.name}"
        self._path = folder.data_dir / TOKENS_FOLDER / f"{quote(server.name, safe='')}.json"
        self._url = server.url
        self._exchange, self.renews = folder.exchange, folder.renews
        self.shared_name = f"{TOKENS_FOLDER}/{self._path.name}"  # among services with folders of their own

    def read(self) -> StoredTokens | None:
        """Return the tokens for the server's present URL."""
        try:
            tokens = StoredTokens(**json.loads(self._sealer.open(self._path.read_text("utf-8"), self._purpose)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, NotOpened) as error:
            log.warning("mcp.tokens_unreadable file=%s problem=%s", self._path, error)
            return None
        return tokens if tokens.url == self._url else None

    def version(self) -> int:
        """Return a number that differs after each change; 0 without a file."""
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    def write(self, tokens: StoredTokens) -> None:
        """Replace the file in one step. Raises OSError."""
        self._replace(self._sealer.seal(json.dumps(asdict(tokens)), self._purpose))

    def load(self) -> bytes | None:
        """Return the content as it is stored; None without a file. Raises OSError."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def store(self, content: bytes | None) -> None:
        """Replace the file by what `load` returned elsewhere. Raises OSError."""
        if content is None:
            self.remove()
        else:
            self._replace(content.decode("utf-8", "replace"))

    def _replace(self, text: str) -> None:
        partial = self._path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)

    def seal_anew(self) -> bool:
        """Write the file under the present key, if it is under another one or open. Returns whether that was so."""
        try:
            stored = self._path.read_text("utf-8")
        except FileNotFoundError:
            return False
        if self._sealer.is_current(stored) or (tokens := self.read()) is None:
            return False
        self.write(tokens)
        return True

    def remove(self) -> bool:
        """Remove the file. Returns whether there was one."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keep other requests and processes from changing the file. Raises OSError."""
        with self._open_lock() as file:
            while True:  # a thread that waits for the lock could not be cancelled
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_POLL_SECONDS)
            if not self._exchange:
                yield
                return
            async with self._exchange.exchanged(self):
                yield

    def _open_lock(self) -> BinaryIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(os.open(self._path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600), "wb")
