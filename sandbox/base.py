"""The sandbox protocols that every provider implements, and their errors.

SandboxError
├── SandboxUnavailable   this provider cannot work on this machine; the text says how to get it
├── Gone                 the sandbox ended under a running call; the next use gets a new one
└── FileFault            a path could not be read or written (missing, outside, not a file, too big)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = "/mnt/user-data"
WORKSPACE, UPLOADS, OUTPUTS = f"{ROOT}/workspace", f"{ROOT}/uploads", f"{ROOT}/outputs"
SKILLS = "/mnt/skills"
FOLDERS = ("workspace", "uploads", "outputs")


class SandboxError(Exception):
    """The sandbox could not do it."""


class SandboxUnavailable(SandboxError):
    """This provider cannot work here; the text is one sentence with the fix."""


class SandboxGone(SandboxError):
    """The sandbox ended while it was used. Its folders are intact; the next call gets a new one."""


class SandboxFileError(SandboxError):
    """A file could not be read or written; the text names the virtual path and the reason, never a host path."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did. `exit_code` is None when the time-out killed it (128 + n when signal n did). `output` is
    stdout and stderr in order of arrival, at most `max_output` bytes: of a longer one the beginning and the end, with
    a word between them; `dropped` counts the bytes left out. `cwd` is where the shell ended, `seconds` how long it
    took."""

    exit_code: int | None
    output: str
    dropped: int
    cwd: str
    timed_out: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder as the agent sees it: virtual path, bytes, and what it is: "file" (a regular file with one
    name), "folder", "link", "hard link", "pipe", "socket" or "device"."""

    path: str
    size: int
    kind: str = "file"

    @property
    def folder(self) -> bool:
        return self.kind == "folder"


@dataclass(frozen=True, slots=True)
class Match:
    """One line that a search found: virtual path, 1-based line number, the line (shortened to 500 characters)."""

    path: str
    line: int
    text: str


class Sandbox(Protocol):
    """One thread's machine. Paths are virtual and absolute (/mnt/user-data/…); links resolve inside."""

    runs_commands: bool  # False: files only (no bubblewrap), `run` raises SandboxUnavailable

    @property
    def gone(self) -> bool:
        """It ended: every call raises Gone, acquire another one."""

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
        """Run one bash command. `cwd` None goes on where the last command ended (at first the workspace). A time-out
        or the cancellation of this coroutine kills the whole process tree; processes left in the background after a
        normal end live on until the sandbox is reaped. `on_output` gets text as it comes, the first half of
        `max_output` bytes at most."""

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Bytes of a regular file. Raises FileFault."""

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Write a file below /mnt/user-data, making its folders; whole or not at all, unless it appends. Raises
        FileFault."""

    async def stat(self, path: str) -> Entry:
        """What is at `path`, with links resolved: the result has the real path. Raises FileFault."""

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        """Files and folders below `path`, sorted, at most `limit`. Raises FileFault."""

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        """Virtual paths of files below `path` that match, newest first (see `sandbox.inside.search.translate`
        for patterns). Raises FileFault."""

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        """Lines below `path` that match a Python regular expression. Raises FileFault for a bad expression."""


class SandboxProvider(Protocol):
    """A kind of machine. `key` names a thread's machine; it may be any text (hash it before using it as a name)."""

    name: str
    runs_commands: bool  # what its sandboxes say: without commands there is no bash tool

    async def check(self) -> None:
        """A real probe. Raises SandboxUnavailable."""

    def acquire(self, key: str, folder: Path) -> AbstractAsyncContextManager[Sandbox]:
        """The machine of `key` with the three folders below `folder` (made if missing). Leaving the context makes it
        idle, it is not destroyed: background processes live on until `reap` or `destroy`."""

    async def reap(self, idle: float) -> list[str]:
        """Stop machines that nobody used for `idle` seconds; returns their keys."""

    async def destroy(self, key: str) -> None:
        """Stop this machine now; its folders stay."""

    async def close(self) -> None:
        """Stop everything of this provider."""


class SandboxHandle(Protocol):
    """A turn's lazy hold on its sandbox: the first call (or `warm`) starts it, the end of the turn lets it go."""

    runs_commands: bool

    def warm(self) -> None:
        """Begin to start it; returns at once."""

    async def get(self) -> Sandbox:
        """The sandbox, started. Raises SandboxError."""
