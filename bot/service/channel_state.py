"""Keep what channels need over restarts in the database, sealed under the service's key.

Seal the handles of events before they are stored, and open them for the replies.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.messages import Message, ReplyHandle, Thread
from bot.base.stored_secrets import CHANNEL, HANDLE, sealer_of
from bot.config.schema import Config
from bot.database import audit
from bot.database.database import Database, Execute, StorageError
from bot.rights.current import Current
from bot.storage import channels
from channels.base import FILE_ITEM, NotStored
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.sealing import NotOpened

FOLDER = "channels"  # in data_dir: files of channels


class StoredChannelState:
    """`channels.base.StateStore` of one channel."""

    def __init__(self, store: Database, current: Current, channel: str) -> None:
        self._store = store
        self._current = current
        self._channel = channel

    @property
    def folder(self) -> Path:
        return self._current.config.data_dir / FOLDER / self._channel

    async def load(self) -> Mapping[str, str]:
        """Return everything that is kept. Raises NotStored, also where the key is another one."""
        sealer = sealer_of(self._current.config)
        try:
            kept = await self._store.run(lambda execute: channels.read_state(execute, self._channel))
            return {name: sealer.open(value, CHANNEL) for name, value in kept.items()}
        except (StorageError, NotOpened) as error:
            raise NotStored(str(error)) from error

    async def save(self, changes: Mapping[str, str | None], *, of: str = "", until: float | None = None) -> None:
        """Keep these texts in one transaction. Raises NotStored."""
        sealer = sealer_of(self._current.config)
        sealed = {name: text if text is None else sealer.seal(text, CHANNEL) for name, text in changes.items()}
        author = audit.person_name(self._channel, of) if of else ""
        write = partial(channels.write_state, channel=self._channel, changes=sealed, author=author, until=until)
        try:
            await self._store.run(write)
        except StorageError as error:
            raise NotStored(str(error)) from error

    async def renew(self, name: str, text: str, *, until: float) -> bool:
        """Replace a text, unless it was dropped meanwhile. Raises NotStored."""
        sealed = sealer_of(self._current.config).seal(text, CHANNEL)
        renew = partial(channels.renew_state, channel=self._channel, name=name, value=sealed, until=until)
        try:
            return await self._store.run(renew)
        except StorageError as error:
            raise NotStored(str(error)) from error


async def sweep_channel_files(store: Database, data_dir: Path) -> None:
    """Remove the files of channels whose texts are no more: also those of a channel that is no more."""
    found = await run_file_work(lambda: [*(data_dir / FOLDER).glob("*/*")])
    for channel in {path.parent.name for path in found}:
        kept = await store.run(partial(channels.read_state, channel=channel), durable=False)
        gone = [path for path in found if path.parent.name == channel and f"{FILE_ITEM}{path.stem}" not in kept]
        await run_file_work(_remove, gone)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


log = logging.getLogger(__name__)


def keep_handle(execute: Execute, config: Config, message: Message) -> None:
    """Store the handle of a message, if it has one, until its end."""
    if (handle := message.reply_handle) and handle.current:
        sealed = replace(handle, token=sealer_of(config).seal(handle.token, HANDLE))
        channels.store_handle(execute, message, sealed, time.time())


def find_handle(execute: Execute, config: Config, thread: Thread, message: str) -> ReplyHandle | None:
    """Return the handle by which to answer a message; None without one, or under another key."""
    return open_handle(config, channels.find_handle(execute, thread, message))


def open_handle(config: Config, stored: ReplyHandle | None) -> ReplyHandle | None:
    """Return a handle as its channel gave it."""
    if stored is None:
        return None
    try:
        return replace(stored, token=sealer_of(config).open(stored.token, HANDLE))
    except NotOpened as error:
        log.error("secrets.not_opened what=handle reason=%s", error)  # noqa: TRY400 — the reason is enough
        return None
