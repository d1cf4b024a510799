"""The protocol of console views, and text without control characters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

from agent.blocks import Block, View
from channels.shared.texts import shorten

_CONTROL = {code: None for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\n\t"}
ICONS = {"running": "•", "done": "✓", "failed": "✗", "stopped": "■", "pending": "○"}
_MAX_TITLE_CHARS = 200


class Key(Enum):
    INTERRUPT = "Ctrl-C"


def strip_controls(text: str) -> str:
    """Remove control characters, so that no text controls the terminal."""
    return text.translate(_CONTROL)


class ConsoleView(AbstractAsyncContextManager["ConsoleView"], Protocol):
    """The input and output of the console. Entered as long as the channel is open."""

    async def read(self) -> str | Key | None:
        """Return the next message or key, or None at the end of the input."""

    def show(self, view: View, block: Block) -> None:
        """Show `block` soon, which was added to `view`. Returns at once."""

    def drop(self, view: View) -> None:
        """Stop showing `view`."""

    def set_busy(self, working: bool) -> None:
        """Show whether a turn is running."""

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        """Set the commands (name, help) to complete."""

    async def write(self, text: str, *, markdown: bool = False) -> None:
        """Print after all earlier output. Raises ChatGone if the output is closed."""


def one_line(text: str) -> str:
    """Return a text on one line of limited length, without control characters."""
    return strip_controls(shorten(text, _MAX_TITLE_CHARS))
