"""The folders of conversations on the host: the protocol, and plain folders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from sandbox.base import SandboxProvider
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree

LINGER_SECONDS = 120.0  # what nobody used for so long is let go: longer than any machine takes to start


class ConversationFolders(Protocol):
    """The folders of all conversations, side by side below `root`; each may hold `size` bytes."""

    root: Path
    size: int

    @property
    def description(self) -> str:
        """How that bound is kept, for people."""

    def open(self, folder: Path, *, writes: bool = True) -> AbstractAsyncContextManager[bool]:
        """Use a conversation's folder while the context is open; gives whether the kernel keeps its bound (else
        somebody has to measure). Raises SandboxError."""

    def list_folders(self) -> list[Path]:
        """Those of all conversations. Blocks."""

    async def adopt_leftovers(self) -> None:
        """Take over what another life of this service left behind."""

    async def release_idle(self, idle: float = LINGER_SECONDS, keep: Collection[Path] = ()) -> None:
        """Give back what folders take while they are used, of those that nobody used for `idle` seconds."""

    async def release_folder(self, folder: Path) -> None:
        """The same for one, now, if nobody uses it."""

    async def remove(self, folder: Path) -> bool:
        """Delete a conversation's folder with everything in it; whether all of it is gone. Raises OSError."""

    async def check(self, provider: SandboxProvider) -> None:
        """Try that machines of `provider` can work in them. Raises SandboxUnavailable with the fix."""


class PlainFolders:
    """See `ConversationFolders`. Nothing is mounted: the bound has to be measured (`sandbox.disk.quota`)."""

    def __init__(self, root: Path, size_mb: int) -> None:
        self.root, self.size = root, size_mb << 20

    @property
    def description(self) -> str:
        """See `ConversationFolders.words`."""
        return f"{self.size >> 20} MB of files each (measured)"

    @asynccontextmanager
    async def open(self, folder: Path, *, writes: bool = True) -> AsyncIterator[bool]:
        """See `ConversationFolders.open`."""
        yield False

    def list_folders(self) -> list[Path]:
        """See `ConversationFolders.folders`."""
        return sorted(self.root.glob("*"))

    async def adopt_leftovers(self) -> None:
        """Nothing is left behind."""

    async def release_idle(self, idle: float = LINGER_SECONDS, keep: Collection[Path] = ()) -> None:
        """Nothing to give back."""

    async def release_folder(self, folder: Path) -> None:
        """Nothing to give back."""

    async def remove(self, folder: Path) -> bool:
        """See `ConversationFolders.remove`."""
        return not await run_file_work(remove_tree, folder)

    async def check(self, provider: SandboxProvider) -> None:
        """They work with every machine."""
