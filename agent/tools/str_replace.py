"""Replace text in a file."""

from __future__ import annotations

import asyncio
from typing import Annotated
from weakref import WeakValueDictionary

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, make_tool
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import SandboxFileError

MAX_FILE_BYTES = 4 << 20
# Calls of one turn run concurrently: without a lock, one of two edits of a file would be lost.
_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Editing {name}")),
        needs_sandbox=True,
        permission="allow",
        subject=Subject("path", "path"),
    )
)
async def str_replace(
    path: Annotated[str, "Absolute path below /mnt/user-data."],
    old: Annotated[str, "The exact text to replace, including whitespace and line ends."],
    new: Annotated[str, "The new text."],
    runtime: Runtime,
    all: Annotated[bool, "Replace every occurrence; otherwise there must be exactly one."] = False,
) -> str:
    """Replace an exact text in a text file. Fails if the text is missing, or occurs more than once without `all`."""
    path = absolute_path(path)
    if not old:
        raise SandboxFileError("old is empty; use write_file for a new file")
    sandbox = await runtime.context.sandbox.get()
    lock = _locks.setdefault((id(sandbox), path), asyncio.Lock())
    async with lock:
        data = await sandbox.read(path, limit=MAX_FILE_BYTES)
        if len(data) == MAX_FILE_BYTES:
            raise SandboxFileError(f"{path}: is too large to edit in place; use bash")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise SandboxFileError(f"{path}: is not UTF-8 text") from error
        count = text.count(old)
        if not count:
            raise SandboxFileError(f"{path}: the text to replace is not in the file; read it and copy the text exactly")
        if count > 1 and not all:
            raise SandboxFileError(f"{path}: the text to replace occurs {count} times; give more of it, or set all")
        await sandbox.write(path, text.replace(old, new).encode("utf-8", "replace"))
    return f"Replaced {count} {'place' if count == 1 else 'places'} in {path}"


make = always(str_replace)
