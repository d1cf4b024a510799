"""Find words in all files of a service: those of `data_dir`, and those of its database where that is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.rehearsed_database import files_with_rows


def found_in(data: Path, words: Sequence[str]) -> dict[str, list[str]]:
    """Return which of the words are anywhere in the files, and where."""
    found: dict[str, list[str]] = {}
    for path in [*sorted(data.rglob("*")), *files_with_rows(data / "fawn.db")]:
        if path.is_file():
            content = (path.name.encode() + path.read_bytes()).lower()
            for word in words:
                if word.encode() in content or word.encode("utf-16-le") in content:
                    found.setdefault(word, []).append(str(path.relative_to(data) if data in path.parents else path))
    return found
