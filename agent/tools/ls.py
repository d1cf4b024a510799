"""List a folder."""

from __future__ import annotations

from typing import Annotated

from agent.tools.tool import Runtime, absolute, offer
from sandbox.base import WORKSPACE

MOST = 500


@offer
async def ls(
    runtime: Runtime,
    path: Annotated[str, "Absolute path of a folder."] = WORKSPACE,
    depth: Annotated[int, "How many levels of folders to show."] = 1,
) -> str:
    """List what is in a folder, with sizes in bytes; at most 500 entries."""
    path = absolute(path)
    sandbox = await runtime.context.machine.get()
    entries = await sandbox.ls(path, depth=max(depth, 1), limit=MOST + 1)
    notes = {"file": "{:,}", "folder": "folder"}
    shown = [
        f"{entry.path}{'/' if entry.folder else ''}  {notes.get(entry.kind, entry.kind).format(entry.size)}"
        for entry in entries[:MOST]
    ]
    if len(entries) > MOST:
        shown.append(f"[more than {MOST} entries]")
    return "\n".join(shown) or "[the folder is empty]"
