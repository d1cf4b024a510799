"""Write or extend a text file."""

from __future__ import annotations

from typing import Annotated

from agent.tools.tool import Runtime, absolute_path, make_tool


@make_tool
async def write_file(
    path: Annotated[str, "Absolute path below /mnt/user-data."],
    content: Annotated[str, "The text."],
    runtime: Runtime,
    append: Annotated[bool, "Add to the end instead of replacing the file."] = False,
) -> str:
    """Write a text file, making its folders. An existing file is replaced, unless append is true."""
    path, data = absolute_path(path), content.encode("utf-8", "replace")
    sandbox = await runtime.context.sandbox.get()
    await sandbox.write(path, data, append=append)
    return f"{'Appended' if append else 'Wrote'} {len(data):,} bytes: {path}"
