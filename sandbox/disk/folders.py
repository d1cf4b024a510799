"""The folders of conversations on the host, as plain folders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from catalogue import N_, LazyText
from sandbox.base import SandboxProvider
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree

LINGER_SECONDS = 120.0  # until an unused folder is unmounted; longer than any sandbox takes to start


class ConversationFolders:
    """The folders of all conversations, side by side below `root`. Each may hold `size` bytes, which
    `sandbox.disk.quota` measures; `sandbox.disk.loop_images` lets the kernel enforce it."""

    def __init__(self, root: Path, size_mb: int) -> None:
        self.root, self.size = root, size_mb << 20

    @property
    def description(self) -> LazyText:
        """Describe the bound and how it is enforced, for people."""
        return LazyText(N_("{size} MB of files each (measured)"), size=self.size >> 20)

    @asynccontextmanager
    async def open_folder(self, folder: Path, *, writes: bool = True) -> AsyncIterator[bool]:
        """Use a folder. Yields whether the kernel enforces its limit. Raises SandboxError."""
        yield False

    def list_folders(self) -> list[Path]:
        """List the folders of all conversations, but no link: it would lead out of `root`. Blocks."""
        return sorted(path for path in self.root.glob("*") if not path.is_symlink())

    def list_links(self) -> list[Path]:
        """List the links among the folders, which nothing follows. Blocks."""
        return sorted(path for path in self.root.glob("*") if path.is_symlink())

    async def adopt_leftovers(self) -> None:
        """Take over the mounts that a previous process left behind."""

    async def release_idle(self, idle: float = LINGER_SECONDS, keep: Collection[Path] = ()) -> None:
        """Unmount the folders that were not used for `idle` seconds, except `keep`."""

    async def release_folder(self, folder: Path) -> None:
        """Unmount one folder now, if it is not in use."""

    async def remove_folder(self, folder: Path) -> bool:
        """Delete a folder and its content. Returns whether all of it is deleted. Raises OSError."""
        return not await run_file_work(remove_tree, folder)

    async def check(self, provider: SandboxProvider) -> None:
        """Check that sandboxes of `provider` can use these folders. Raises SandboxUnavailable with the fix."""
