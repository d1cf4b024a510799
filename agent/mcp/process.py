"""Start the process of a stdio server, with the named environment only, and in bubblewrap if wanted."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from agent.settings.mcp import McpServerSettings
from sandbox.bubblewrap.provider import system_binds


async def stdio_parameters(settings: McpServerSettings) -> dict[str, Any]:
    """Return the parameters of the process. Raises FileNotFoundError without the program or bubblewrap."""
    command, args = settings.command, list(settings.args)
    found = await asyncio.to_thread(shutil.which, command)
    if found is None:
        raise FileNotFoundError(f"there is no program {command!r}")
    if settings.sandbox:
        found = str(Path.cwd() / found)
        program = await asyncio.to_thread(shutil.which, "bwrap")
        if program is None:
            raise FileNotFoundError("`sandbox: true` needs bubblewrap: apt install bubblewrap")
        args = [*await asyncio.to_thread(_walls, settings), "--", found, *args]
        command = program
    return {"command": command, "args": args, "env": dict(settings.env), "cwd": settings.cwd or None}


def _walls(settings: McpServerSettings) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if settings.network:
        options += ["--share-net", "--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
        options += ["--ro-bind-try", "/etc/ssl", "/etc/ssl"]
    options += [*system_binds(), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108  its own one
    for folder in settings.read:
        options += ["--ro-bind", folder, folder]
    if settings.cwd:
        options += ["--bind", settings.cwd, settings.cwd, "--chdir", settings.cwd]
    else:
        options += ["--chdir", "/tmp"]  # noqa: S108  its own one
    return options
