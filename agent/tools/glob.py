"""Find files by name."""

from __future__ import annotations

from typing import Annotated

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, join_lines, make_tool
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import ROOT

MAX_FILES = 200


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Looking for {pattern}")),
        needs_sandbox=True,
        effect="none",
        read_only=True,
        permission="allow",
        subject=Subject("path", "folder", ROOT),
    )
)
async def glob(
    pattern: Annotated[str, "For example *.py (at any depth), src/**/*.{ts,tsx}, report-?.pdf."],
    runtime: Runtime,
    path: Annotated[str, "Absolute path of the folder to search."] = ROOT,
) -> str:
    """Find files by name; newest first, at most 200. * matches within a folder, ** across folders."""
    path = absolute_path(path)
    relative = pattern.removeprefix(path.rstrip("/") + "/")
    sandbox = await runtime.context.sandbox.get()
    found = await sandbox.glob(relative, path, limit=MAX_FILES + 1)
    return join_lines(found, MAX_FILES, "files") or f"[no file below {path} matches {pattern}]"


make = always(glob)
