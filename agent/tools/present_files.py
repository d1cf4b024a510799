"""Hand files to the person, in order."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from agent.tools.tool import Runtime, absolute_path, make_tool
from sandbox.base import OUTPUTS, Sandbox, SandboxError


class PresentedFile(BaseModel):
    """A file to hand over."""

    path: str = Field(description="Absolute path below /mnt/user-data/outputs.")
    caption: str = Field(default="", description="A few words that are shown with the file.")


@make_tool
async def present_files(
    files: Annotated[list[PresentedFile], "The files in the order to send them."],
    runtime: Runtime,
) -> tuple[str, dict[str, Any]]:
    """Send files to the person in this order, with captions, when you are done. Files you leave in
    /mnt/user-data/outputs are sent in any case; use this for order and captions."""
    sandbox = await runtime.context.sandbox.get()
    said: list[str] = []
    presented: list[dict[str, str]] = []  # goes with the result into the checkpoint: see `agent.event_mapper.presented`
    for file in files:
        path, problem = await _inspect_file(sandbox, absolute_path(file.path))
        if problem:
            said.append(f"{file.path} will not be sent: {problem}.")
            continue
        said.append(f"{path} will be sent.")
        presented.append({"path": path, "caption": file.caption})
    return "\n".join(said) or "No file was named.", {"presented": presented}


async def _inspect_file(sandbox: Sandbox, path: str) -> tuple[str, str]:
    """The real path of a file, and why it cannot be sent ("" when it can)."""
    try:
        entry = await sandbox.stat(path)
    except SandboxError as error:
        return path, str(error).removeprefix(f"{path}: ")
    if not entry.path.startswith(OUTPUTS + "/"):
        return path, f"it is not below {OUTPUTS}"
    if entry.kind != "file":
        return path, f"it is a {entry.kind}, not a regular file"
    return entry.path, ""
