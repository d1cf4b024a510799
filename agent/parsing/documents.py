"""Documents as text: `sandbox/inside/documents.py` parses them in the sandbox, never on the host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import orjson

from sandbox.base import UPLOADS, Sandbox, SandboxFileError, ShellCommand
from sandbox.inside import documents
from sandbox.wire.connection import program_source

CONVERT_SECONDS = 120.0
DESCRIBE_SECONDS = 15.0
SOURCE_FORMATS = frozenset((".csv", ".tsv", ".html", ".htm"))  # text that people send, but source code elsewhere
END_MARK = "__END_OF_DOCUMENTS__"


@dataclass(frozen=True, slots=True)
class ConvertedDocument:
    """The file with a document's text, what the document is, and its parts with their lines."""

    path: str
    description: str
    chars: int
    outline: tuple[str, ...]


def is_document(path: str) -> bool:
    """Return whether a file is read as a document, by its name and place."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in documents.READERS and (suffix not in SOURCE_FORMATS or path.startswith(f"{UPLOADS}/"))


async def convert_document(sandbox: Sandbox, path: str, seconds: float = CONVERT_SECONDS) -> ConvertedDocument:
    """Write the text of a document to a file in the workspace, as far as it is read in time. Raises SandboxError."""
    answer = await _run_script(sandbox, "convert", path, seconds)
    try:
        outline = tuple(str(each)[:200] for each in answer["outline"][:100])
        return ConvertedDocument(str(answer["path"]), str(answer["description"])[:1000], int(answer["chars"]), outline)
    except (LookupError, TypeError, ValueError) as error:  # a program of the sandbox answered in its place
        raise SandboxFileError(f"{path}: could not be read as a document") from error


async def describe_document(sandbox: Sandbox, path: str) -> str:
    """Return in a few words what a document is, such as "PDF, 12 pages". Raises SandboxError."""
    answer = await _run_script(sandbox, "describe", path, DESCRIBE_SECONDS)
    return " ".join(str(answer.get("description", "")).split())[:300]


async def _run_script(sandbox: Sandbox, task: str, path: str, seconds: float) -> Mapping[str, Any]:
    # Started in `/`, so that no module of the workspace takes the place of one of the standard library.
    program = f"python3 - {task} {shlex.quote(path)} {seconds}"
    call = f"(cd / && exec {program}) 2>/dev/null <<'{END_MARK}'\n{_source()}\n{END_MARK}"
    result = await sandbox.run(ShellCommand(call, timeout_seconds=seconds))
    if result.exit_code is None:
        raise SandboxFileError(f"{path}: could not be read as a document within {seconds:.0f} s")
    try:
        answer = orjson.loads(result.output)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise SandboxFileError(f"{path}: could not be read as a document; it may need too much memory or time")
    if "error" in answer:
        raise SandboxFileError(f"{path}: {answer['error']}")
    return answer


MODULES = ("text_encoding", "packed", "archives", "office", "sheets", "letters")


@cache
def _source() -> str:
    return program_source(MODULES, "documents")
