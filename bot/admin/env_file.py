"""Write variables into a .env file and keep everything else in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

FILE_MODE = 0o600  # it holds secrets


def set_variables(file: Path, values: Mapping[str, str]) -> None:
    """Replace the lines of these variables, or append them, in one step. Raises OSError."""
    file = file.resolve()  # a link stays a link
    text = file.read_text("utf-8") if file.exists() else ""
    for name, value in values.items():
        line, old = f"{name}={_quote(value)}", re.compile(rf"^[ \t]*(?:export[ \t]+)?{name}[ \t]*=.*$\n?", re.MULTILINE)
        first = old.search(text)
        at = first.start() if first else len(text)
        head, rest = text[:at], old.sub("", text[at:])
        text = f"{head}{'' if not head or head.endswith(chr(10)) else chr(10)}{line}\n{rest}"
    write_whole(file, text, FILE_MODE)


def write_whole(file: Path, text: str, mode: int) -> None:
    """Replace the text of a file in one step; it gets this mode. Raises OSError."""
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


def _quote(value: str) -> str:
    if re.fullmatch(r"[\w.:/+=@%,-]*", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
