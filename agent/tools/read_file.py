"""Read a text file."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from agent.core.tool import Runtime, ToolTraits, absolute_path, always, describe_as, make_tool
from agent.parsing.documents import convert_document, is_document
from agent.permissions.rules import Subject
from catalogue import N_
from sandbox.base import Sandbox, SandboxFileError
from sandbox.inside.packed import packing_of
from sandbox.inside.text_encoding import find_codec

MAX_CHARS = 80_000  # in one result
SYNOPSIS_LINES = 100  # of the beginning of a long document
CHUNK_BYTES = 1 << 20
MAX_BYTES = 64 << 20  # read before giving up


class BinaryFile(SandboxFileError):
    """The file is no text."""


@make_tool(
    ToolTraits(
        describe=describe_as(N_("Reading {name}")),
        needs_sandbox=True,
        effect="none",
        read_only=True,
        paged=True,
        permission="allow",
        subject=Subject("path", "path"),
        brings="files",
    )
)
async def read_file(
    path: Annotated[str, "Absolute path."],
    runtime: Runtime,
    start_line: Annotated[int, "First line, counted from 1."] = 1,
    lines: Annotated[int, "How many lines."] = 2000,
) -> str:
    """Read a text file or some of its lines, at most 80,000 characters. The result says where to continue. PDF, Word,
    Excel, PowerPoint, EPUB and ZIP files are read as text, and so is what gzip, bzip2 or xz has packed."""
    path, first = absolute_path(path), max(start_line, 1)
    sandbox = await runtime.context.sandbox.get()
    named = is_document(path)
    if not (sandbox.runs_commands and named):
        try:
            return await _read_range(sandbox, path, first, first + max(lines, 1))
        except BinaryFile:
            if named or not sandbox.runs_commands:
                raise
    return await _read_document(sandbox, path, first, lines)


make = always(read_file)


async def _read_document(sandbox: Sandbox, path: str, first: int, lines: int) -> str:
    """Return lines of the text of a document, which its first bytes name, whatever it is called."""
    document = await convert_document(sandbox, path)
    head = f"[{path}: {document.description}; its text is in {document.path}]\n"
    if document.chars > MAX_CHARS and first == 1:
        head += "\n".join(["[Parts, by line of the text]", *document.outline, "[Beginning]", ""])
        lines = min(lines, SYNOPSIS_LINES)
    return head + await _read_range(sandbox, document.path, first, first + max(lines, 1))


async def _read_range(sandbox: Sandbox, path: str, first: int, end: int) -> str:
    notes: list[str] = []
    text = await _take_lines(sandbox, path, first, end, notes)
    return "".join((*notes, text))


async def _take_lines(sandbox: Sandbox, path: str, first: int, end: int, notes: list[str]) -> str:
    taken: list[str] = []
    remaining_chars, number = MAX_CHARS, 0
    async with aclosing(_read_lines(sandbox, path, notes)) as source:
        async for line in source:
            number += 1
            if number < first:
                continue
            if number == end:
                return f"{''.join(taken)}[lines {first} to {end - 1}; continue with start_line={end}]"
            if len(line) > remaining_chars and taken:
                note = f"[lines {first} to {number - 1}, at the limit of {MAX_CHARS:,} characters"
                return f"{''.join(taken)}{note}; continue with start_line={number}]"
            if len(line) > remaining_chars:
                note = f"[line {number} is cut after {MAX_CHARS:,} characters; use bash for the rest of it]"
                return f"{line[:remaining_chars]}\n{note}"
            taken.append(line)
            remaining_chars -= len(line)
    if not taken:
        return f"[the file has {number} lines]" if number else "[the file is empty]"
    return "".join(taken)


async def _read_lines(sandbox: Sandbox, path: str, notes: list[str]) -> AsyncGenerator[str, None]:
    """Yield the lines of a text file in any encoding, with line ends. An overlong line is cut.

    `notes` gets another encoding than UTF-8.
    """
    decoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")("replace")
    offset, rest, ended = 0, "", False
    while not ended and len(rest) <= MAX_CHARS:
        if offset >= MAX_BYTES:
            raise SandboxFileError(f"{path}: more than {MAX_BYTES >> 20} MB before that line; use bash")
        data = await sandbox.read(path, offset=offset, limit=CHUNK_BYTES)
        if not offset:
            if packing := packing_of(data):
                raise BinaryFile(f"{path}: is packed with {packing}; ask the person for the unpacked file")
            if not (codec := await asyncio.to_thread(find_codec, data)):
                raise BinaryFile(f"{path}: is a binary file, not text; inspect it with a program")
            decoder = codecs.getincrementaldecoder("utf-8-sig" if codec == "utf-8" else codec)("replace")
            if codec != "utf-8":
                notes.append(f"[in the encoding {codec}]\n")
        offset, ended = offset + len(data), len(data) < CHUNK_BYTES
        *whole, rest = (rest + decoder.decode(data, ended)).split("\n")
        for line in whole:
            yield line + "\n"
    if rest:
        yield rest
