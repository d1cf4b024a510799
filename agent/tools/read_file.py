"""Read a text file."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from agent.tools.tool import Runtime, absolute, offer
from sandbox.base import FileFault, Sandbox

MOST = 80_000  # characters in one answer
PIECE = 1 << 20  # bytes read at once
FAR = 64 << 20  # bytes looked through for the first line


@offer
async def read_file(
    path: Annotated[str, "Absolute path."],
    runtime: Runtime,
    start_line: Annotated[int, "First line, counted from 1."] = 1,
    lines: Annotated[int, "How many lines."] = 2000,
) -> str:
    """Read a text file, or a window of its lines; at most 80,000 characters, and says where to read on."""
    path, first = absolute(path), max(start_line, 1)
    end = first + max(lines, 1)
    taken: list[str] = []
    room, number = MOST, 0
    async with aclosing(_lines(await runtime.context.machine.get(), path)) as source:
        async for line in source:
            number += 1
            if number < first:
                continue
            if number == end:
                return f"{''.join(taken)}[lines {first} to {end - 1}; read on with start_line={end}]"
            if len(line) > room and taken:
                told = f"[lines {first} to {number - 1}, {MOST:,} characters are the most at once"
                return f"{''.join(taken)}{told}; read on with start_line={number}]"
            if len(line) > room:
                return f"{line[:room]}\n[line {number} is cut after {MOST:,} characters; use bash for the rest of it]"
            taken.append(line)
            room -= len(line)
    if not taken:
        return f"[the file has {number} lines]" if number else "[the file is empty]"
    return "".join(taken)


async def _lines(sandbox: Sandbox, path: str) -> AsyncGenerator[str, None]:
    """The lines of a text file, with their ends. An endless one is given as far as it matters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    offset, rest, ended = 0, "", False
    while not ended and len(rest) <= MOST:
        if offset >= FAR:
            raise FileFault(f"{path}: more than {FAR >> 20} MB before that line; use bash")
        data = await sandbox.read(path, offset=offset, limit=PIECE)
        if not offset and b"\0" in data[:8192]:
            raise FileFault(f"{path}: is a binary file of no text; look at it with a program")
        offset, ended = offset + len(data), len(data) < PIECE
        *whole, rest = (rest + decoder.decode(data, ended)).split("\n")
        for line in whole:
            yield line + "\n"
    if rest:
        yield rest
