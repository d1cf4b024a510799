"""List a folder."""

from __future__ import annotations

from typing import Annotated

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, join_lines, make_tool
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import WORKSPACE

MAX_ENTRIES = 500


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Listing {name}")),
        needs_sandbox=True,
        effect="none",
        read_only=True,
        permission="allow",
        subject=Subject("path", "folder", WORKSPACE),
    )
)
async def ls(
    runtime: Runtime,
    path: Annotated[str, "Absolute path of a folder."] = WORKSPACE,
    depth: Annotated[int, "How many levels of folders to show."] = 1,
) -> str:
    """List the contents of a folder, with sizes in bytes; at most 500 entries."""
    path = absolute_path(path)
    sandbox = await runtime.context.sandbox.get()
    entries = await sandbox.ls(path, depth=max(depth, 1), limit=MAX_ENTRIES + 1)
    notes = {"file": "{:,}", "folder": "folder"}
    lines = [
        f"{entry.path}{'/' if entry.folder else ''}  {notes.get(entry.kind, entry.kind).format(entry.size)}"
        for entry in entries
    ]
    return join_lines(lines, MAX_ENTRIES, "entries") or "[the folder is empty]"


make = always(ls)
