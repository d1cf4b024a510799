"""The provider for a machine without bubblewrap: the three folders and the skills as files, and no commands at all.

Everything happens on the host, so everything goes through `sandbox.disk.safe_files`; links are refused, not followed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson

from sandbox.base import (
    FOLDERS,
    ROOT,
    SKILLS,
    CommandResult,
    Entry,
    Match,
    Sandbox,
    SandboxFileError,
    SandboxUnavailable,
)
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.inside import search

NO_COMMANDS = "Commands cannot be run here: bubblewrap is not available. Only files can be read and written."
SEARCH_SECONDS = 30.0


class FilesOnlySandbox:
    """A `Sandbox` without commands, over the thread's `folder` and the `skills`."""

    runs_commands = False
    gone = False

    def __init__(self, folder: Path, skills: Path) -> None:
        self._folder, self._skills = folder, skills

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        max_output: int = 64_000,
        on_output: Callable[[str], Awaitable[None]] | None = None,
    ) -> CommandResult:
        """Raises SandboxUnavailable."""
        raise SandboxUnavailable(NO_COMMANDS)

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """See `Sandbox.read`."""
        root, rel = self._resolve_path(path)
        with _with_virtual_path(path, rel):
            return await run_file_work(safe_files.read_file, root, rel, limit, offset)

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """See `Sandbox.write`."""
        root, rel = self._resolve_path(path)
        if root == self._skills:
            raise SandboxFileError(f"{path}: only files below {ROOT} can be written")
        with _with_virtual_path(path, rel):
            await run_file_work(safe_files.append_file if append else safe_files.write_file, root, rel, data)

    async def stat(self, path: str) -> Entry:
        """See `Sandbox.stat`; a link is refused."""
        root, rel = self._resolve_path(path)
        with _with_virtual_path(path, rel):
            size, kind = await run_file_work(safe_files.look, root, rel)
        return Entry(path, size, kind)

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        """See `Sandbox.ls`."""
        if path.rstrip("/") == ROOT:
            tops = [Entry(f"{ROOT}/{name}", 0, "folder") for name in FOLDERS]
            below = [entry for top in tops if depth > 1 for entry in await self.ls(top.path, depth=depth - 1)]
            return sorted([*tops, *below], key=lambda entry: entry.path)[:limit]
        root, rel = self._resolve_path(path)

        def look() -> list[search.Row]:
            with safe_files.opened(root, rel) as top:
                return search.list_entries(top, depth, limit)

        with _with_virtual_path(path, rel):
            return [Entry(_virtual_path(path, rel), size, kind) for rel, size, kind in await run_file_work(look)]

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        """See `Sandbox.glob`; of all three folders at once, files are newest first within each."""
        found = [
            (top, hit) for top in _top_folders(path) for hit in await self._search_in_process(top, [pattern, limit])
        ]
        return [_virtual_path(top, str(rel)) for top, rel in found][:limit]

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        """See `Sandbox.grep`."""
        found = [
            (top, hit) for top in _top_folders(path) for hit in await self._search_in_process(top, [glob, limit, regex])
        ]
        return [Match(_virtual_path(top, rel), line, text) for top, (rel, line, text) in found][:limit]

    async def _search_in_process(self, path: str, arguments: list[str | int]) -> list[Any]:  # JSON rows
        """Search in a process of its own: a hostile expression would hold up the service."""
        root, rel = self._resolve_path(path)

        def handle() -> int:
            with safe_files.opened(root, rel) as top:
                return os.dup(top)

        with _with_virtual_path(path, rel):
            top = await run_file_work(handle)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", search.__file__, str(top), json.dumps(arguments), pass_fds=(top,),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            os.close(top)
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                answer, _ = await process.communicate()
        except TimeoutError:
            raise SandboxFileError(f"{path}: the search took too long") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        rows = orjson.loads(answer) if process.returncode == 0 else "the search failed"
        if not isinstance(rows, list):
            raise SandboxFileError(f"{path}: {rows}")
        return rows

    def _resolve_path(self, path: str) -> tuple[Path, str]:
        """The folder of ours that a virtual path lies in, and the path below it."""
        for top in FOLDERS:
            if path == f"{ROOT}/{top}" or path.startswith(f"{ROOT}/{top}/"):
                return self._folder / top, path[len(f"{ROOT}/{top}") :].lstrip("/") or "."
        if path == SKILLS or path.startswith(SKILLS + "/"):
            return self._skills, path[len(SKILLS) :].lstrip("/") or "."
        raise SandboxFileError(f"{path}: only {', '.join(f'{ROOT}/{top}' for top in FOLDERS)} and {SKILLS} can be used")


class FilesOnlyProvider:
    """See `SandboxProvider`. Nothing runs, so nothing is started, kept or stopped."""

    name = "files only"
    runs_commands = False

    def __init__(self, skills: Path) -> None:
        self._skills = skills

    async def check(self) -> None:
        """Works everywhere."""

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        """See `SandboxProvider.acquire`."""
        await run_file_work(safe_files.make_folders, folder)
        yield FilesOnlySandbox(folder, self._skills)

    async def reap(self, idle: float) -> list[str]:
        """Nothing to stop."""
        return []

    async def destroy(self, key: str) -> None:
        """Nothing to stop."""

    async def close(self) -> None:
        """Nothing to stop."""


@contextmanager
def _with_virtual_path(path: str, rel: str) -> Iterator[None]:
    """Faults name the path as the agent knows it."""
    try:
        yield
    except SandboxFileError as fault:
        raise SandboxFileError(f"{path}: {str(fault).removeprefix(safe_files.shown_path(rel) + ': ')}") from fault


def _top_folders(path: str) -> list[str]:
    return [f"{ROOT}/{top}" for top in FOLDERS] if path.rstrip("/") == ROOT else [path]


def _virtual_path(path: str, rel: str) -> str:
    return f"{path.rstrip('/')}/{rel}"
