"""Take the press that says which of several open questions a text answers, as a feature."""

from __future__ import annotations

from bot.commands.call import CommandCall
from bot.commands.feature import Feature
from bot.commands.table import Press, Pressed
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.journey.addressing import NEITHER, PREFIX, held_by, release_held
from channels.base import Receipt


def check_choice(execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press without effect; None for one of who wrote the text that waits."""
    row = parse_row_id(pressed.subject)
    author = held_by(execute, row) if row is not None else None
    if author is None:
        return Receipt.DUPLICATE
    return None if author == pressed.click.author.id else Receipt.IGNORED


def answer_choice(call: CommandCall, pressed: Pressed) -> str:
    """Have the text read as the chosen answer."""
    if (row := parse_row_id(pressed.subject)) is not None:
        release_held(call.execute, call.current.access, row, pressed.label, call.now)
    return ""


FEATURE = Feature("threads", presses={PREFIX: Press("which", (NEITHER,), check_choice, answer_choice, has_names=True)})
