"""The protocol of console views, and text that cannot steer a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

from agent.blocks import Block, View

_CONTROL = {code: None for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\n\t"}
ICONS = {"running": "•", "done": "✓", "failed": "✗", "stopped": "■", "pending": "○"}
_MAX_TITLE_CHARS = 200


class Key(Enum):
    INTERRUPT = "Ctrl-C"


def strip_controls(text: str) -> str:
    """Text without control characters: nothing that is shown may steer the terminal."""
    return text.translate(_CONTROL)


class ConsoleView(AbstractAsyncContextManager["ConsoleView"], Protocol):
    """What a person sees and types. Entered for the life of the channel."""

    async def read(self) -> str | Key | None:
        """The next message or key; None when there is no more."""

    def show(self, view: View, block: Block) -> None:
        """`block` was added to `view`: let it be seen soon. Returns at once."""

    def drop(self, view: View) -> None:
        """Do not show `view` any longer."""

    def set_busy(self, working: bool) -> None:
        """Whether somebody waits for an answer."""

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        """Commands (name, help) to complete while typing."""

    async def write(self, text: str, *, markdown: bool = False) -> None:
        """Print for good, after everything before. Raises Gone when nobody can read it."""


def one_line(text: str) -> str:
    """Text on one line of a bearable length."""
    line = strip_controls(" ".join(text.split()))
    return line if len(line) <= _MAX_TITLE_CHARS else line[: _MAX_TITLE_CHARS - 1] + "…"
