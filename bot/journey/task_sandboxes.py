"""Sandboxes that belong to one task of a turn. Their folders lie beside the conversation's, under its name."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.base import SandboxHandle, SandboxProvider
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.engines.select import LazySandbox

log = logging.getLogger(__name__)


class TaskSandboxes:
    """The sandboxes of the tasks of one conversation, whose own folder is `folder`."""

    def __init__(
        self, provider: SandboxProvider, folders: ConversationFolders, conversation: str, folder: Path
    ) -> None:
        self._provider, self._folders = provider, folders
        self._conversation, self._folder = conversation, folder
        self.seconds = 0.0  # of those uses that ended
        self._used: dict[str, Path] = {}  # the keys of sandboxes → their folders

    @asynccontextmanager
    async def open(self, task: str) -> AsyncIterator[SandboxHandle]:
        """Give a task its sandbox. The same task gets the same folder after a restart."""
        key, digest = f"{self._conversation}/{task}", hashlib.sha256(task.encode()).hexdigest()[:12]
        folder = self._used[key] = self._folder.with_name(f"{self._folder.name}-{digest}")
        sandbox = LazySandbox(self._provider, key, folder)
        try:
            yield sandbox
        finally:
            self.seconds += sandbox.seconds
            await sandbox.aclose()

    async def destroy(self) -> None:
        """Stop the sandboxes of this turn, and that of its conversation. Their folders stay."""
        for key in (*self._used, self._conversation):
            await self._provider.destroy(key)

    async def remove(self, *, leftovers: bool) -> None:
        """Stop the sandboxes of this turn and delete their folders, and those that an earlier attempt left."""
        for key in self._used:
            await self._provider.destroy(key)
        try:
            if leftovers:
                await remove_task_folders(self._folders, self._folder)
            else:  # the next turn may work already
                for folder in self._used.values():
                    await self._folders.remove_folder(folder)
        except OSError as error:  # retention deletes them with the conversation
            log.warning("turn.task_folders_left reason=%s", error)


async def remove_task_folders(folders: ConversationFolders, folder: Path) -> None:
    """Delete the folders of all tasks of the conversation with this folder. Raises OSError."""
    for each in await run_file_work(folders.list_folders):
        if each.name.startswith(f"{folder.name}-"):
            await folders.remove_folder(each)
