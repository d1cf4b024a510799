"""Find files by name."""

from __future__ import annotations

from typing import Annotated

from agent.tools.tool import Runtime, absolute_path, make_tool
from sandbox.base import ROOT

MAX_FILES = 200


@make_tool
async def glob(
    pattern: Annotated[str, "For example *.py (at any depth), src/**/*.{ts,tsx}, report-?.pdf."],
    runtime: Runtime,
    path: Annotated[str, "Absolute path of the folder to look in."] = ROOT,
) -> str:
    """Find files by name; newest first, at most 200. * stays within a folder, ** crosses folders."""
    path = absolute_path(path)
    below = pattern.removeprefix(path.rstrip("/") + "/")
    sandbox = await runtime.context.sandbox.get()
    found = await sandbox.glob(below, path, limit=MAX_FILES + 1)
    if len(found) > MAX_FILES:
        found[MAX_FILES:] = [f"[more than {MAX_FILES} files]"]
    return "\n".join(found) or f"[no file below {path} matches {pattern}]"
