"""Send files to the person in a given order."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, make_tool
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import OUTPUTS, Sandbox, SandboxError


class PresentedFile(BaseModel):
    """A file to send."""

    path: str = Field(description="Absolute path below /mnt/user-data/outputs.")
    caption: str = Field(default="", description="A short caption for the file.")


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Choosing the files to send")),
        needs_sandbox=True,
        effect="none",
        permission="allow",
        subject=Subject("files", "paths"),
    )
)
async def present_files(
    files: Annotated[list[PresentedFile], "The files in the order to send them."],
    runtime: Runtime,
) -> tuple[str, dict[str, Any]]:
    """Send files to the person in this order, with captions, when you finish. Files in /mnt/user-data/outputs are sent
    in any case; use this tool to set their order and captions."""
    sandbox = await runtime.context.sandbox.get()
    lines: list[str] = []
    presented: list[dict[str, str]] = []  # stored with the result, for `agent.core.event_mapper.presented_files`
    for file in files:
        path, problem = await _inspect_file(sandbox, absolute_path(file.path))
        if problem:
            lines.append(f"{file.path} will not be sent: {problem}.")
            continue
        lines.append(f"{path} will be sent.")
        presented.append({"path": path, "caption": file.caption})
    return "\n".join(lines) or "No file was named.", {"presented": presented}


make = always(present_files)


async def _inspect_file(sandbox: Sandbox, path: str) -> tuple[str, str]:
    """Return the real path of a file, and why it cannot be sent ("" if it can)."""
    try:
        entry = await sandbox.stat(path)
    except SandboxError as error:
        return path, str(error).removeprefix(f"{path}: ")
    if not entry.path.startswith(OUTPUTS + "/"):
        return path, f"it is not below {OUTPUTS}"
    if entry.kind != "file":
        return path, f"it is a {entry.kind}, not a regular file"
    return entry.path, ""
