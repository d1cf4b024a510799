"""Texts that all platforms share: progress lines, hints below questions, answers to clicks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.blocks import APPROVAL_OPTIONS, Ask

NOT_STORED = "I can't save messages right now. You don't need to send it again: I'll pick yours up as soon as I can."
NOT_YOURS = "Only the person who was asked can answer this."
ANSWERED = "This is already answered or closed."
REPEAT_MARK = "↻ Possibly a repeat:"  # before a message that may be visible twice
EXPIRES_DENIED = "_Expires {when}: without an answer it counts as denied._"
EXPIRES_OPEN = "_Expires {when}: then I go on without an answer._"
EXPIRES_IN_HOURS = "in {hours:g} h"
CHOSEN, APPROVED, DENIED = "✓ {option} ({name})", "✅ Approved by {name}", "❌ Denied by {name}"


def shorten(text: str, max_chars: int) -> str:
    """Return the text on one line, cut to `max_chars` characters."""
    text = " ".join(text.split())
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def remove_bot_mention(text: str) -> str:
    """Return the text without each "\\0", which stands for a mention of the bot, and the punctuation after it."""
    return re.sub(r"(?m)^\0[ \t,:，：]*|(?<![ \t])[ \t]*\0|\0", "", text).strip()


def option_in_full(label: str, index: str, text: str) -> str:
    """Return the option that a button shows. A label that was cut stands by its number in the text of the question."""
    if not label.endswith("…") or not index.isdecimal():
        return label
    listed = re.findall(rf"(?m)^{int(index) + 1}\. (.+)$", text)
    return next((full for full in reversed(listed) if full.startswith(label[:-1].rstrip())), label)


def expiry_note(ask: Ask, when: str = "") -> str:
    """Return when a question expires, "" for never. `when` is the time as the platform shows it to each reader."""
    sentence = EXPIRES_DENIED if ask.approval else EXPIRES_OPEN
    return sentence.format(when=when or EXPIRES_IN_HOURS.format(hours=ask.hours)) if ask.hours else ""


def choice_line(option: str, name: str) -> str:
    """Return what replaces the buttons of an answered question."""
    if option in APPROVAL_OPTIONS:
        return (APPROVED if option == APPROVAL_OPTIONS[0] else DENIED).format(name=name)
    return CHOSEN.format(option=option, name=name)


def question_hint(ask: Ask, *, has_buttons: bool, max_label_chars: int, when: str = "") -> str:
    """Return the text below a question: the options that its buttons do not show in full, how to answer, and until
    `when`."""
    lines = []
    if not has_buttons or any(len(option) > max_label_chars for option in ask.options):
        lines += numbered_options(ask.options)
    if ask.options and ask.free_text:
        lines += ["", "_Choose, or answer in your own words._" if has_buttons else "_Answer in your own words._"]
    elif ask.options and not has_buttons:
        lines += ["", "_Answer with one of these._"]
    lines += ["", note] if (note := expiry_note(ask, when)) else []
    return "\n".join(lines).strip()


def numbered_options(options: Sequence[str]) -> list[str]:
    """Return a line for each option, to be answered by its number."""
    return [f"{number}. {' '.join(option.split())}" for number, option in enumerate(options, 1)]


def with_options(text: str, options: Sequence[str]) -> str:
    """Return the text of a question that cannot show buttons, with its options unless it lists them already."""
    lines = numbered_options(options)
    return text if all(line in text for line in lines) else "\n".join([text, "", *lines])
