"""The sandbox protocols that every provider implements, and their errors.

SandboxError
├── SandboxUnavailable   the provider does not work on this machine; the text says how to fix that
├── SandboxGone          the sandbox ended during a call; the next call gets a new one
└── SandboxFileError     a path cannot be read or written
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from catalogue import N_, LocalizedError

ROOT = "/mnt/user-data"
WORKSPACE, UPLOADS, OUTPUTS = f"{ROOT}/workspace", f"{ROOT}/uploads", f"{ROOT}/outputs"
SKILLS, SHARED_MODULES = "/mnt/skills", ".lib"  # the second is a folder there, on the path of Python
SKILL_PACKAGES = "/mnt/skill-packages"  # skills/lib/sitecustomize.py has it on the path of Python, too
FOLDERS = ("workspace", "uploads", "outputs")
NO_REASON = N_("no reason given")

StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""A connection."""


class SandboxError(LocalizedError):
    """A sandbox operation failed. The texts that only the model reads are plain English."""


class SandboxUnavailable(SandboxError):
    """This provider does not work here. The text, for operators, is one sentence with the fix."""


class SandboxGone(SandboxError):
    """The sandbox ended during a call. Its folders are intact; the next call gets a new one."""


class SandboxFileError(SandboxError):
    """A file cannot be read or written. The text has the virtual path and the reason, never a host path."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A bash command. Without `cwd` it runs where the last command ended, at first in the workspace. `on_output`
    receives the first half of `max_output_bytes` as it arrives. The command reads what `stdin` yields, nothing without
    it. The service's own limit of time does not hold for a command with `stdin` or in the background, which does not
    change the folder of the next one, either."""

    text: str
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 120
    max_output_bytes: int = 64_000
    on_output: Callable[[str], Awaitable[None]] | None = None
    stdin: AsyncIterator[bytes] | None = None
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. `exit_code` is None after a timeout, 128 + n after signal n. `output` is stdout and
    stderr in order of arrival, without the `dropped` bytes in the middle. `cwd` is the shell's last folder."""

    exit_code: int | None
    output: str
    dropped: int
    cwd: str
    timed_out: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory entry: its virtual path, bytes, and kind: "file" (a regular file with one name), "folder", "link",
    "hard link", "pipe", "socket" or "device"."""

    path: str
    size: int
    kind: str = "file"

    @property
    def folder(self) -> bool:
        return self.kind == "folder"


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line: virtual path, 1-based line number, and the line, cut after 500 characters."""

    path: str
    line: int
    text: str


def child_path(path: str, rel: str) -> str:
    return f"{path.rstrip('/')}/{rel}"


class Sandbox(Protocol):
    """The sandbox of one conversation. Paths are virtual and absolute (/mnt/user-data/…)."""

    runs_commands: bool  # False without bubblewrap: then `run` raises SandboxUnavailable

    @property
    def gone(self) -> bool:
        """Whether the sandbox has ended. Then every call raises SandboxGone."""

    async def run(self, command: ShellCommand) -> CommandResult:
        """Run one bash command. A timeout or a cancellation kills the whole process tree. Processes that a command
        leaves in the background run until the sandbox stops."""

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read bytes of a regular file. Raises SandboxFileError."""

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Write a file below /mnt/user-data, atomically unless it appends. Raises SandboxFileError."""

    async def stat(self, path: str) -> Entry:
        """Describe the entry at `path`, with its links resolved. Raises SandboxFileError."""

    async def realpath(self, path: str) -> str:
        """Return a path with its links resolved, as far as they exist. Raises SandboxFileError."""

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        """List at most `limit` files and folders below `path`, sorted. Raises SandboxFileError."""

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        """List the files below `path` that match (see `translate_glob`), newest first. Raises SandboxFileError."""

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        """Find the lines below `path` that match a Python regular expression. Raises SandboxFileError."""


class SandboxProvider(Protocol):
    """Starts and stops sandboxes. `key` names the sandbox of a conversation and may be any text."""

    name: str
    runs_commands: bool  # False: the agent does not get a bash tool

    async def check(self) -> None:
        """Start a sandbox to see whether that works. Raises SandboxUnavailable."""

    def acquire(self, key: str, folder: Path) -> AbstractAsyncContextManager[Sandbox]:
        """Use the sandbox of `key` with the three folders below `folder`, which are made if missing. At the end of the
        context the sandbox becomes idle; its background processes run until `reap` or `destroy`."""

    async def reap(self, idle: float) -> list[str]:
        """Stop the sandboxes that were idle for `idle` seconds. Returns their keys."""

    async def destroy(self, key: str) -> None:
        """Stop this sandbox now. Its folders stay."""

    async def close(self) -> None:
        """Stop all sandboxes of this provider."""


class SandboxHandle(Protocol):
    """Gives a turn its sandbox, and starts it on first use. The end of the turn releases it."""

    runs_commands: bool

    def warm(self) -> None:
        """Start the sandbox in the background."""

    async def get(self) -> Sandbox:
        """Return the sandbox, started. Raises SandboxError."""
