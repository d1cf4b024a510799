"""The provider for a machine without bubblewrap: files, but no commands.

All access is on the host, through `sandbox.disk.safe_files`, which refuses links.
"""

from __future__ import annotations

import json
import os
import posixpath
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson

from catalogue import N_
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
    ShellCommand,
    child_path,
)
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.usage import run_helper
from sandbox.inside import search
from sandbox.wire.connection import program_source

P = ParamSpec("P")
T = TypeVar("T")

NO_COMMANDS = N_("Commands cannot be run here: bubblewrap is not available. Only files can be read and written.")
SEARCH_SECONDS = 30.0
SEARCH_PROGRAM = program_source(("text_encoding", "packed"), "search")


class FilesOnlySandbox:
    """A `Sandbox` over the conversation's `folder` and the `skills`, without commands."""

    runs_commands = False
    gone = False

    def __init__(self, folder: Path, skills: Path) -> None:
        self._folder, self._skills = folder, skills

    async def run(self, command: ShellCommand) -> CommandResult:
        raise SandboxUnavailable(NO_COMMANDS)

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return await self._run_file_work(path, safe_files.read_file, limit, offset)

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        if self._resolve_path(path)[0] == self._skills:
            raise SandboxFileError(f"{path}: only files below {ROOT} can be written")
        await self._run_file_work(path, safe_files.append_file if append else safe_files.write_file, data)

    async def stat(self, path: str) -> Entry:
        return Entry(path, *await self._run_file_work(path, safe_files.size_and_kind))

    async def realpath(self, path: str) -> str:
        return posixpath.normpath(f"/{path.lstrip('/')}")  # links are refused

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        if path.rstrip("/") == ROOT:
            tops = [Entry(f"{ROOT}/{name}", 0, "folder") for name in FOLDERS]
            below = [entry for top in tops if depth > 1 for entry in await self.ls(top.path, depth=depth - 1)]
            return sorted([*tops, *below], key=lambda entry: entry.path)[:limit]

        def list_entries(root: Path, rel: str) -> list[search.Row]:
            with safe_files.open_below(root, rel) as top:
                return search.list_entries(top, depth, limit)

        rows = await self._run_file_work(path, list_entries)
        return [Entry(child_path(path, rel), size, kind) for rel, size, kind in rows]

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        """See `Sandbox.glob`. For all three folders together, files are newest first within each."""
        return [child_path(top, rel) for top, rel in await self._search(path, [pattern, limit])][:limit]

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        found = await self._search(path, [glob, limit, regex])
        return [Match(child_path(top, rel), line, text) for top, (rel, line, text) in found][:limit]

    async def _search(self, path: str, arguments: list[str | int]) -> list[tuple[str, Any]]:  # JSON rows
        """Search in a separate process, because a hostile expression may never end. Returns (folder, row)."""
        if path.rstrip("/") == ROOT:
            return [found for top in FOLDERS for found in await self._search(f"{ROOT}/{top}", arguments)]

        def open_folder(root: Path, rel: str) -> int:
            with safe_files.open_below(root, rel) as top:
                return os.dup(top)

        top = await self._run_file_work(path, open_folder)
        program = (sys.executable, "-I", "-S", "-c", SEARCH_PROGRAM, str(top), json.dumps(arguments))
        try:
            answer, _ = await run_helper(*program, seconds=SEARCH_SECONDS, pass_fds=(top,))
            rows = orjson.loads(answer)
        except TimeoutError:
            raise SandboxFileError(f"{path}: the search took too long") from None
        except orjson.JSONDecodeError:  # the program failed
            raise SandboxFileError(f"{path}: the search failed") from None
        finally:
            os.close(top)
        if not isinstance(rows, list):
            raise SandboxFileError(f"{path}: {rows}")
        return [(path, row) for row in rows]

    async def _run_file_work(
        self, path: str, work: Callable[Concatenate[Path, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` on the host path of `path`, in a thread. Errors name the virtual path."""
        root, rel = self._resolve_path(path)
        try:
            return await run_file_work(work, root, rel, *args, **kwargs)
        except SandboxFileError as fault:
            reason = str(fault).removeprefix(safe_files.shown_path(rel) + ": ")
            raise SandboxFileError(f"{path}: {reason}") from fault

    def _resolve_path(self, path: str) -> tuple[Path, str]:
        """Split a virtual path into a host folder and the path below it."""
        for top in FOLDERS:
            if path == f"{ROOT}/{top}" or path.startswith(f"{ROOT}/{top}/"):
                return self._folder / top, path[len(f"{ROOT}/{top}") :].lstrip("/") or "."
        if path == SKILLS or path.startswith(SKILLS + "/"):
            return self._skills, path[len(SKILLS) :].lstrip("/") or "."
        raise SandboxFileError(f"{path}: only {', '.join(f'{ROOT}/{top}' for top in FOLDERS)} and {SKILLS} can be used")


class FilesOnlyProvider:
    """A `SandboxProvider` without anything to start or stop."""

    name = "files only"
    runs_commands = False

    def __init__(self, skills: Path) -> None:
        self._skills = skills

    async def check(self) -> None:
        """Succeed: files work on every machine."""

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        await run_file_work(safe_files.make_folders, folder)
        yield FilesOnlySandbox(folder, self._skills)

    async def reap(self, idle: float) -> list[str]:
        return []

    async def destroy(self, key: str) -> None:
        """Do nothing: nothing runs."""

    async def close(self) -> None:
        """Do nothing: nothing runs."""
