"""Search text files."""

from __future__ import annotations

from typing import Annotated

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, join_lines, make_tool
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import ROOT

MAX_LINES = 100


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Searching for {pattern}")),
        needs_sandbox=True,
        effect="none",
        read_only=True,
        permission="allow",
        subject=Subject("path", "folder", ROOT),
        brings="files",
    )
)
async def grep(
    pattern: Annotated[str, "A Python regular expression."],
    runtime: Runtime,
    path: Annotated[str, "Absolute path of the folder to search."] = ROOT,
    glob: Annotated[str, "Which files to search, for example *.py."] = "**",
) -> str:
    """Search text files for lines that match a regular expression; returns at most 100, as path:line:text."""
    path = absolute_path(path)
    sandbox = await runtime.context.sandbox.get()
    matches = await sandbox.grep(pattern, path, glob=glob, limit=MAX_LINES + 1)
    lines = [f"{match.path}:{match.line}:{match.text}" for match in matches]
    return join_lines(lines, MAX_LINES, "lines") or f"[no line below {path} matches]"


make = always(grep)
