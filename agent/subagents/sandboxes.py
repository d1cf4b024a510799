"""The sandbox of a task: which files the task leaves, and a sandbox of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.core.context import TurnContext
from sandbox.base import OUTPUTS, Sandbox, SandboxError, SandboxHandle

LISTED_FILES, FOLDER_DEPTH = 200, 3
MAX_COPIED_FILES, COPIED_DEPTH = 10_000, 64
NAMED_FILES = 100
COPY_BYTES = 1 << 20  # at once


class WatchedSandbox:
    """The handle of a sandbox that notices which files in outputs/ are new since the task first used it."""

    def __init__(self, handle: SandboxHandle) -> None:
        self.runs_commands = handle.runs_commands
        self._handle = handle
        self._before: dict[str, int] | None = None

    def warm(self) -> None:
        self._handle.warm()

    async def get(self) -> Sandbox:
        """See `SandboxHandle.get`."""
        sandbox = await self._handle.get()
        if self._before is None:
            self._before = {}
            self._before = await _list_outputs(sandbox)
        return sandbox

    async def new_files(self) -> list[str]:
        """Return the paths of new and changed files; none if the task has not used the sandbox."""
        if self._before is None:
            return []
        found = await _list_outputs(await self.get())
        return [path for path, size in found.items() if self._before.get(path) != size]


@asynccontextmanager
async def task_sandbox(context: TurnContext, *, own: bool, key: str) -> AsyncIterator[WatchedSandbox]:
    """Give a task the conversation's sandbox, or its own, whose outputs are copied at the end. Raises SandboxError."""
    if not own:
        yield WatchedSandbox(context.sandbox)
        return
    if context.own_sandboxes is None:
        raise SandboxError("Sandboxes for single tasks are not available here.")
    async with context.own_sandboxes(key) as handle:
        yield WatchedSandbox(handle)


async def copy_outputs(source: SandboxHandle, target: SandboxHandle, name: str) -> list[str]:
    """Copy the files in outputs/ to a folder of the target's outputs/, as far as its quota allows. Returns the new
    paths, and a sentence about each file that could not be copied."""
    slug = re.sub(r"[^\w-]+", "-", name).strip("-")[:60] or "task"
    inside, shared = await source.get(), await target.get()
    copied, left = [], []
    found = await _list_outputs(inside, COPIED_DEPTH, MAX_COPIED_FILES + 1)
    for path, size in [*found.items()][:MAX_COPIED_FILES]:
        new = f"{OUTPUTS}/{slug}/{path.removeprefix(f'{OUTPUTS}/')}"
        try:
            for offset in range(0, max(size, 1), COPY_BYTES):
                data = await inside.read(path, offset=offset, limit=COPY_BYTES)
                await shared.write(new, data, append=offset > 0)
        except SandboxError as error:
            left.append(f"NOT COPIED, and lost with the task's sandbox: {new} ({error})")
            if shared.gone or inside.gone:
                break
        else:
            copied.append(new)
    if (missing := len(found) - len(copied) - len(left)) > 0:
        left.append(f"NOT COPIED: {missing} or more further files")
    return [*_shortened(left), *_shortened(copied)]


def _shortened(names: list[str]) -> list[str]:
    more = len(names) - NAMED_FILES
    return [*names[:NAMED_FILES], *([f"and {more} more"] if more > 0 else [])]


async def _list_outputs(sandbox: Sandbox, depth: int = FOLDER_DEPTH, limit: int = LISTED_FILES) -> dict[str, int]:
    try:
        entries = await sandbox.ls(OUTPUTS, depth=depth, limit=limit)
    except SandboxError:  # the folder does not exist, or the sandbox has ended: then there are no files to name
        return {}
    return {entry.path: entry.size for entry in entries if entry.kind == "file"}
