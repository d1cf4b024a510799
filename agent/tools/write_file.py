"""Write a text file, or append to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from agent.core.tool import Effect, Runtime, ToolTraits, absolute_path, always, describe_as, make_tool
from agent.permissions.rules import Subject
from catalogue import N_


def _effect_of(args: Mapping[str, Any]) -> Effect:
    return "once" if args.get("append", False) else "none"


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Writing {name}")),
        needs_sandbox=True,
        effect=_effect_of,
        permission="allow",
        subject=Subject("path", "path"),
    )
)
async def write_file(
    path: Annotated[str, "Absolute path below /mnt/user-data."],
    content: Annotated[str, "The text."],
    runtime: Runtime,
    append: Annotated[bool, "Append to the file instead of replacing it."] = False,
) -> str:
    """Write a text file; missing folders are created. An existing file is replaced unless append is true."""
    path, data = absolute_path(path), content.encode("utf-8", "replace")
    sandbox = await runtime.context.sandbox.get()
    await sandbox.write(path, data, append=append)
    return f"{'Appended' if append else 'Wrote'} {len(data):,} bytes: {path}"


make = always(write_file)
