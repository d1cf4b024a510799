"""Replace text in a file."""

from __future__ import annotations

import asyncio
from typing import Annotated
from weakref import WeakValueDictionary

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, make_tool
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import SandboxFileError
from sandbox.inside.text_encoding import find_codec

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
        codec, text = await asyncio.to_thread(_decode, path, data)
        count = text.count(old)
        if not count:
            raise SandboxFileError(f"{path}: the text to replace is not in the file; read it and copy the text exactly")
        if count > 1 and not all:
            raise SandboxFileError(f"{path}: the text to replace occurs {count} times; give more of it, or set all")
        try:
            changed = text.replace(old, new).encode(codec, "replace" if codec == "utf-8" else "strict")
        except UnicodeEncodeError as error:
            sign = error.object[error.start]
            raise SandboxFileError(
                f"{path}: its encoding {codec} has no {sign!r}; convert the file to UTF-8 with bash first"
            ) from None
        await sandbox.write(path, changed)
    return f"Replaced {count} {'place' if count == 1 else 'places'} in {path}"


make = always(str_replace)


def _decode(path: str, data: bytes) -> tuple[str, str]:
    """Return the encoding of a file, and its text, which that encoding gives back exactly. Raises SandboxFileError."""
    codec = find_codec(data)
    try:
        text = data.decode(codec or "utf-8")
    except UnicodeDecodeError:
        text = ""
    if not codec or text.encode(codec) != data:
        raise SandboxFileError(f"{path}: is not text that can be edited in place; use bash")
    return codec, text
