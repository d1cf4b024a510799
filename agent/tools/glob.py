"""Find files by name."""

from __future__ import annotations

from typing import Annotated

from agent.tools.tool import Runtime, absolute, offer
from sandbox.base import ROOT

MOST = 200


@offer
async def glob(
    pattern: Annotated[str, "For example *.py (at any depth), src/**/*.{ts,tsx}, report-?.pdf."],
    runtime: Runtime,
    path: Annotated[str, "Absolute path of the folder to look in."] = ROOT,
) -> str:
    """Find files by name; newest first, at most 200. * stays within a folder, ** crosses folders."""
    path = absolute(path)
    below = pattern.removeprefix(path.rstrip("/") + "/")
    sandbox = await runtime.context.machine.get()
    found = await sandbox.glob(below, path, limit=MOST + 1)
    if len(found) > MOST:
        found[MOST:] = [f"[more than {MOST} files]"]
    return "\n".join(found) or f"[no file below {path} matches {pattern}]"
