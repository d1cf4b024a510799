"""The folders of conversations on the host."""

from __future__ import annotations

from pathlib import Path

from catalogue import N_, LazyText
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree


class ConversationFolders:
    """The folders of all conversations, side by side below `root`. Each may hold `size` bytes, which
    `sandbox.disk.quota` measures."""

    def __init__(self, root: Path, size_mb: int) -> None:
        self.root, self.size = root, size_mb << 20

    @property
    def description(self) -> LazyText:
        """Describe the bound, for people."""
        return LazyText(N_("{size} MB of files each (measured)"), size=self.size >> 20)

    def list_folders(self) -> list[Path]:
        """List the folders of all conversations, but no link: it would lead out of `root`. Blocks."""
        return sorted(path for path in self.root.glob("*") if not path.is_symlink())

    def list_links(self) -> list[Path]:
        """List the links among the folders, which nothing follows. Blocks."""
        return sorted(path for path in self.root.glob("*") if path.is_symlink())

    async def remove_folder(self, folder: Path) -> bool:
        """Delete a folder and its content. Returns whether all of it is deleted. Raises OSError."""
        return not await run_file_work(remove_tree, folder)
