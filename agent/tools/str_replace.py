"""Replace a text inside a file."""

from __future__ import annotations

import asyncio
from typing import Annotated
from weakref import WeakValueDictionary

from agent.tools.tool import Runtime, absolute_path, make_tool
from sandbox.base import SandboxFileError

MAX_FILE_BYTES = 4 << 20  # bytes of a file that can be edited
# Calls of one turn run side by side: two edits of a file would lose one. A lock lives as long as somebody holds it.
_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


@make_tool
async def str_replace(
    path: Annotated[str, "Absolute path below /mnt/user-data."],
    old: Annotated[str, "The exact text to replace, with its white space and line ends."],
    new: Annotated[str, "The text to put there."],
    runtime: Runtime,
    all: Annotated[bool, "Replace every occurrence; otherwise there must be exactly one."] = False,
) -> str:
    """Replace an exact text in a text file. Fails when the text is not there, or more than once without all."""
    path = absolute_path(path)
    if not old:
        raise SandboxFileError("old is empty; use write_file for a new file")
    sandbox = await runtime.context.sandbox.get()
    lock = _locks.setdefault((id(sandbox), path), asyncio.Lock())
    async with lock:
        data = await sandbox.read(path, limit=MAX_FILE_BYTES)
        if len(data) == MAX_FILE_BYTES:
            raise SandboxFileError(f"{path}: is too big to edit in place; use bash")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise SandboxFileError(f"{path}: is not UTF-8 text") from error
        count = text.count(old)
        if not count:
            raise SandboxFileError(f"{path}: the text to replace is not in the file; read it and copy the text exactly")
        if count > 1 and not all:
            raise SandboxFileError(f"{path}: the text to replace is there {count} times; give more of it, or set all")
        await sandbox.write(path, text.replace(old, new).encode("utf-8", "replace"))
    return f"Replaced {count} {'place' if count == 1 else 'places'} in {path}"
