"""Lay out an answer: what stands below the words of each text, and whose options are buttons there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.blocks import Ask, Final
from channels.shared import texts


def lay_out(
    final: Final, fits: Callable[[Ask], bool], max_label_chars: int, summary: str = ""
) -> Iterator[tuple[str, Ask | None]]:
    """Yield each text with its hint, and its question where `fits` allows that the options are buttons.

    `summary` stands below the first text.
    """
    for text, ask in final.messages():
        has_buttons = ask is not None and fits(ask)
        hint = texts.question_hint(ask, has_buttons=has_buttons, max_label_chars=max_label_chars) if ask else ""
        yield "\n\n".join(filter(None, (text, hint, summary))), ask if has_buttons else None
        summary = ""


def button_labels(options: tuple[str, ...], max_chars: int) -> list[str]:
    """Return what buttons with these options show."""
    return [texts.shorten(option, max_chars) or "…" for option in options]
