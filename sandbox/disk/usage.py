"""Measure folders and delete a conversation's newest files, in helper programs."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from sandbox.base import FOLDERS
from sandbox.disk import delete_newest as delete_program
from sandbox.processes import start_process

DELETE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes on disk (without the holes of sparse files) and number of files."""

    size: int = 0
    files: int = 0

    def __sub__(self, other: DiskUsage) -> DiskUsage:
        """Return how much more of each this is; at least 0."""
        return DiskUsage(max(0, self.size - other.size), max(0, self.files - other.files))

    def __add__(self, other: DiskUsage) -> DiskUsage:
        return DiskUsage(self.size + other.size, self.files + other.files)

    def reaches(self, other: DiskUsage) -> bool:
        """Whether this has at least as many bytes, or as many files."""
        return self.size >= other.size or self.files >= other.files


async def measure_usage(folders: list[Path], seconds: float = 60.0) -> DiskUsage:
    """Measure `folders`. Raises OSError, ValueError, and TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        size, refused = await _run_du("-skx", folders)
        if refused and os.geteuid() != 0:
            # Commands can close folders to a service that is not root. It owns them, so it can open them again.
            await run_helper("find", *map(str, folders), "-xdev", "-type", "d", "!", "-perm", "-700",
                             "-exec", "chmod", "u+rwx", "{}", ";")  # fmt: skip
            size, _ = await _run_du("-skx", folders)
        files, _ = await _run_du("-sx", folders, "--inodes")
        return DiskUsage(size << 10, files)


async def _run_du(option: str, folders: list[Path], *more: str) -> tuple[int, bool]:
    """Return the sum that `du` prints, and whether a folder was closed to it."""
    stdout, stderr = await run_helper("du", option, *more, "--", *map(str, folders))
    return sum(int(line.split(b"\t")[0]) for line in stdout.splitlines()), b"Permission denied" in stderr


async def run_helper(
    *argv: str, cwd: Path | None = None, seconds: float | None = None, pass_fds: tuple[int, ...] = ()
) -> tuple[bytes, bytes]:
    """Run a program; returns its stdout and stderr. Raises TimeoutError after `seconds`, and kills the program."""
    process = await start_process(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd=cwd, pass_fds=pass_fds, env={"PATH": os.defpath, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            return await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def delete_newest(folder: Path, since: float, need: DiskUsage) -> tuple[DiskUsage, list[tuple[int, str]]]:
    """Run `delete_newest.py`. Returns what it freed and the largest files. Raises OSError, TimeoutError, ValueError."""
    stdout, stderr = await run_helper(
        sys.executable, "-I", "-S", delete_program.__file__, str(since), str(need.size), str(need.files), *FOLDERS,
        cwd=folder, seconds=DELETE_SECONDS,
    )  # fmt: skip
    try:
        size, files, largest = orjson.loads(stdout)
    except orjson.JSONDecodeError:
        raise OSError(stderr.decode(errors="replace")[-500:]) from None
    return DiskUsage(size, files), [(size, name) for size, name in largest]
