"""Count what a long copy has done: its thread adds, and the thread that shows it reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """A part of a long copy."""

    ROWS = "rows"  # of the database
    CHECK = "check"  # of an archive
    UNPACK = "unpack"
    WRITE = "write"  # an archive


@dataclass(slots=True)
class CopyProgress:
    """The part under way, and how many rows or bytes of it are done, of about `total` (0: not known).

    One thread writes. A reader may see the numbers of two moments together, which the next look mends.
    """

    part: Part | None = None
    done: int = 0
    total: int = 0

    def begin(self, part: str, total: int = 0) -> None:
        """Begin the next part."""
        self.done, self.total, self.part = 0, total, Part(part)

    def add(self, count: int) -> None:
        """Note that so many more rows or bytes are done."""
        self.done += count
