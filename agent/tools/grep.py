"""Find lines in files."""

from __future__ import annotations

from typing import Annotated

from agent.tools.tool import Runtime, absolute_path, make_tool
from sandbox.base import ROOT

MAX_LINES = 100


@make_tool
async def grep(
    pattern: Annotated[str, "A Python regular expression."],
    runtime: Runtime,
    path: Annotated[str, "Absolute path of the folder to look in."] = ROOT,
    glob: Annotated[str, "Which files, for example *.py."] = "**",
) -> str:
    """Find lines that match a regular expression in text files; at most 100, as path:line:text."""
    path = absolute_path(path)
    sandbox = await runtime.context.sandbox.get()
    matches = await sandbox.grep(pattern, path, glob=glob, limit=MAX_LINES + 1)
    shown = [f"{match.path}:{match.line}:{match.text}" for match in matches[:MAX_LINES]]
    if len(matches) > MAX_LINES:
        shown.append(f"[more than {MAX_LINES} lines]")
    return "\n".join(shown) or f"[no line below {path} matches]"
