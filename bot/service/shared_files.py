"""Keep small files the same in the folders of all processes on one database.

A file has a row with its latest content and a number. Each process notes which content it had from the row, or gave
to it: a file that differs from that note was changed here, and a row with another number elsewhere. Who changes a file
has its lease, and looks at the row first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import orjson

from agent.settings.mcp_tokens import TokenFile, TokenFolder
from bot.base.background import run_forever
from bot.base.stored_secrets import sealer_of
from bot.database.database import Database, StorageError
from bot.rights.current import Current
from bot.storage import shared_files
from bot.storage.leases import release_lease, take_leases

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0  # between looks for what others have changed
POLL_SECONDS = 0.1  # between two tries to take a lease
NOTES_FILE = "shared.json"  # in data_dir


class LocalFile(Protocol):
    """A file in the folder of this process. Its methods block."""

    @property
    def shared_name(self) -> str: ...

    def load(self) -> bytes | None: ...

    def store(self, content: bytes | None) -> None: ...


@asynccontextmanager
async def hold_lease(store: Database, name: str) -> AsyncIterator[None]:
    """Hold a lease of this process; wait while another process has it. Raises StorageError."""
    take = partial(take_leases, me=store.me, names=(name,))
    while not await store.run(take, durable=False):  # noqa: ASYNC110 — no event tells of another process
        await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        try:
            await store.run(partial(release_lease, me=store.me, name=name))
        except StorageError as error:  # nobody else can have it until this process has ended
            log.warning("lease.kept name=%s reason=%s", name, error)


class SharedFiles:
    """The shared files of this process. `data_dir` is its own."""

    def __init__(self, store: Database, data_dir: Path) -> None:
        self._store = store
        self._notes = data_dir / NOTES_FILE

    @asynccontextmanager
    async def held(self, file: LocalFile) -> AsyncIterator[None]:
        """Keep other processes from changing a file: it is as they have it, and they get what it is afterwards.

        Raises OSError, also where the database cannot say what they have.
        """
        try:
            async with hold_lease(self._store, f"file {file.shared_name}"):
                await self._settle(file)
                yield
                await self._settle(file)
        except StorageError as error:
            raise OSError(f"the database does not answer: {error}") from error

    async def differs(self, file: LocalFile, version: int) -> bool:
        """Return whether a file was changed here, or elsewhere: its row has this version."""
        content, note = await asyncio.to_thread(self._look, file)
        return note != (version, _digest(content))

    def _look(self, file: LocalFile) -> tuple[bytes | None, tuple[int, str]]:
        return file.load(), self._read_notes().get(file.shared_name, (0, ""))

    async def _settle(self, file: LocalFile) -> None:
        """Give a change of this process to the row, or take that of another one from it."""
        name = file.shared_name
        content, (version, digest) = await asyncio.to_thread(self._look, file)
        row = await self._store.run(partial(shared_files.read_shared, name=name), durable=False)
        if row and row.version != version and (not version or digest == _digest(content)):
            await asyncio.to_thread(file.store, row.content)
            self._note(name, row.version, _digest(row.content))
            log.info("files.taken name=%s version=%d", name, row.version)
        elif _digest(content) != digest and (row or content is not None):
            new = await self._store.run(partial(shared_files.write_shared, name=name, content=content))
            self._note(name, new, _digest(content))
            log.info("files.shared name=%s version=%d", name, new)

    def _read_notes(self) -> dict[str, tuple[int, str]]:
        try:
            raw = orjson.loads(self._notes.read_bytes())
            return {str(name): (int(version), str(digest)) for name, (version, digest) in raw.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:  # the rows count then
            log.warning("files.notes_damaged problem=%s", error)
            return {}

    def _note(self, name: str, version: int, digest: str) -> None:
        notes = self._read_notes() | {name: (version, digest)}
        new = self._notes.with_suffix(".new")
        new.write_bytes(orjson.dumps(notes))
        new.replace(self._notes)


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


class SharedTokens:
    """The tokens of MCP servers, of which each renewal takes a refresh token that nobody may use again."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files

    @asynccontextmanager
    async def exchanged(self, file: TokenFile) -> AsyncIterator[None]:
        """See `agent.settings.mcp_tokens.TokenExchange`."""
        async with self._files.held(file):
            yield


async def follow_tokens(store: Database, current: Current, seconds: float = LOOK_SECONDS) -> None:
    """Take over the sign-ins of other processes, and give them those of this one, until cancelled."""
    if not store.is_shared:
        return
    files = SharedFiles(store, current.config.data_dir)

    async def look() -> None:
        await share_tokens(store, files, current)
        await asyncio.sleep(seconds)

    await run_forever("tokens", look)


async def share_tokens(store: Database, files: SharedFiles, current: Current) -> None:
    """Have the tokens of this process as the others have them. Raises StorageError and OSError."""
    config = current.config
    servers = [server for server in config.mcp.servers if server.allows_sign_in]
    if not servers:
        return
    versions = await store.run(shared_files.read_versions, durable=False)
    folder = TokenFolder(config.data_dir, sealer_of(config), SharedTokens(files))
    for server in servers:
        file = TokenFile(folder, server)
        if await files.differs(file, versions.get(file.shared_name, 0)):
            async with file.locked():
                pass
