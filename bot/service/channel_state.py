"""Keep what channels need over restarts in the database, sealed under the service's key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from bot.base.stored_secrets import CHANNEL, sealer_of
from bot.database import audit
from bot.database.database import Database, StorageError
from bot.rights.current import Current
from bot.storage import channel_state
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
            kept = await self._store.run(lambda execute: channel_state.read_state(execute, self._channel))
            return {name: sealer.open(value, CHANNEL) for name, value in kept.items()}
        except (StorageError, NotOpened) as error:
            raise NotStored(str(error)) from error

    async def save(self, changes: Mapping[str, str | None], *, of: str = "", until: float | None = None) -> None:
        """Keep these texts in one transaction. Raises NotStored."""
        sealer = sealer_of(self._current.config)
        sealed = {name: text if text is None else sealer.seal(text, CHANNEL) for name, text in changes.items()}
        author = audit.person_name(self._channel, of) if of else ""
        write = partial(channel_state.write_state, channel=self._channel, changes=sealed, author=author, until=until)
        try:
            await self._store.run(write)
        except StorageError as error:
            raise NotStored(str(error)) from error

    async def renew(self, name: str, text: str, *, until: float) -> bool:
        """Replace a text, unless it was dropped meanwhile. Raises NotStored."""
        sealed = sealer_of(self._current.config).seal(text, CHANNEL)
        renew = partial(channel_state.renew_state, channel=self._channel, name=name, value=sealed, until=until)
        try:
            return await self._store.run(renew)
        except StorageError as error:
            raise NotStored(str(error)) from error


async def sweep_channel_files(store: Database, data_dir: Path) -> None:
    """Remove the files of channels whose texts are no more: also those of a channel that is no more."""
    found = await run_file_work(lambda: [*(data_dir / FOLDER).glob("*/*")])
    for channel in {path.parent.name for path in found}:
        kept = await store.run(partial(channel_state.read_state, channel=channel), durable=False)
        gone = [path for path in found if path.parent.name == channel and f"{FILE_ITEM}{path.stem}" not in kept]
        await run_file_work(_remove, gone)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
