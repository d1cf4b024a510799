"""Say which file a call of a file tool is about, however its path is written."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Protocol

from agent.permissions.rules import ToolUse, canonical_path
from sandbox.base import Sandbox, SandboxFileError

MAX_PATH_CHARS = 4096
_REFUSED = re.compile(r"/(?:proc|dev/(?:fd|std(?:in|out|err)))(?:/|$)")


class PathResolver(Protocol):
    """Gives the sandbox of a turn."""

    async def get(self) -> Sandbox:
        """Return the sandbox, started. Raises SandboxError."""


def refused_path(use: ToolUse) -> str:
    """Return the path of a call that leads to other files than it says, "" for none."""
    paths = [*(canonical_path(path) for path in use.paths()), *use.real]
    return next((path for path in paths if _REFUSED.match(path)), "")


async def resolve_paths(use: ToolUse, machine: PathResolver) -> ToolUse:
    """Return the call with its paths as the sandbox resolves them: no links, no `..`. Raises SandboxError."""
    sandbox = await machine.get()
    return replace(use, real=tuple([await _resolve(sandbox, path) for path in use.paths()]))


async def _resolve(sandbox: Sandbox, path: str) -> str:
    if len(path) > MAX_PATH_CHARS or "\0" in path:  # no file has such a path
        return canonical_path(path)
    try:
        return await sandbox.realpath(posixpath.join(canonical_path(""), path))
    except SandboxFileError:
        return canonical_path(path)
