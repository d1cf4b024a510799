"""Keep what channels need over restarts in the database, sealed under the service's key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.current import Current
from bot.service.stored_secrets import CHANNEL, sealer_of
from bot.storage import channel_state
from bot.storage.database import Database, StorageError
from channels.base import NotStored
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

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Keep these texts in one transaction. Raises NotStored."""
        sealer = sealer_of(self._current.config)
        sealed = {name: text if text is None else sealer.seal(text, CHANNEL) for name, text in changes.items()}
        try:
            await self._store.run(lambda execute: channel_state.write_state(execute, self._channel, sealed))
        except StorageError as error:
            raise NotStored(str(error)) from error


def remove_old_files(data_dir: Path, before: float) -> None:
    """Remove the files of channels that were kept before this unix time: also those of a channel that is no more."""
    for path in (data_dir / FOLDER).glob("*/*"):
        if path.lstat().st_mtime < before:
            path.unlink()
