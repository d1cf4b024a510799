"""Texts that all platforms share: progress lines, hints below questions, answers to clicks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.blocks import Ask, Plan, Step, View
from catalogue import N_, _, ngettext
from channels.base import Receipt

NOT_STORED = N_(
    "I can't save messages right now. Yours isn't lost: I'll pick it up by myself, no need to send it again."
)
NOT_YOURS = N_("Only the person I asked can answer.")
ANSWERED = N_("This is already answered or closed.")
REPEAT_MARK = N_("↻ You may have seen this already:")  # before a message that may be visible twice
_STEP = {"running": "▸", "done": "✓", "failed": "✗", "stopped": "■"}
_ITEM = {"pending": "☐", "running": "▸", "done": "☑"}


def click_answer(receipt: Receipt) -> str:
    """Return why a click had no effect, or "" if it had one."""
    if receipt is Receipt.ACCEPTED:
        return ""
    return _(NOT_YOURS) if receipt is Receipt.IGNORED else _(ANSWERED)


def shorten(text: str, max_chars: int) -> str:
    """Return the text on one line, cut to `max_chars` characters."""
    text = " ".join(text.split())
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def progress_lines(view: View, max_steps: int) -> list[str]:
    """Return the plan and the latest steps, a line each."""
    return [*_plan_lines(view.plan), *_step_lines(list(view.steps.values()), max_steps)]


def remove_bot_mention(text: str) -> str:
    """Return the text without each "\\0", which stands for a mention of the bot, and the punctuation after it."""
    return re.sub(r"(?m)^\0[ \t,:，：]*|(?<![ \t])[ \t]*\0|\0", "", text).strip()


def option_in_full(label: str, index: str, text: str) -> str:
    """Return the option that a button shows. A label that was cut stands by its number in the text of the question."""
    if not label.endswith("…") or not index.isdecimal():
        return label
    listed = re.findall(rf"(?m)^{int(index) + 1}\. (.+)$", text)
    return next((full for full in reversed(listed) if full.startswith(label[:-1].rstrip())), label)


def question_hint(ask: Ask, *, has_buttons: bool, max_label_chars: int) -> str:
    """Return the text below a question: the options that its buttons do not show in full, and how to answer."""
    lines = []
    if not has_buttons or any(len(option) > max_label_chars for option in ask.options):
        lines += numbered_options(ask.options)
    if ask.options and ask.free_text:
        lines += ["", _("_Choose, or answer in your own words._") if has_buttons else _("_Answer in your own words._")]
    elif ask.options and not has_buttons:
        lines += ["", _("_Answer with one of these._")]
    return "\n".join(lines).strip()


def numbered_options(options: Sequence[str]) -> list[str]:
    """Return a line for each option, to be answered by its number."""
    return [f"{number}. {' '.join(option.split())}" for number, option in enumerate(options, 1)]


def with_options(text: str, options: Sequence[str]) -> str:
    """Return the text of a question that cannot show buttons, with its options unless it lists them already."""
    lines = numbered_options(options)
    return text if all(line in text for line in lines) else "\n".join([text, "", *lines])


def _plan_lines(plan: Plan | None) -> list[str]:
    return [f"{_ITEM[item.state]} {shorten(item.title, 100)}" for item in plan.items[:15]] if plan else []


def _step_lines(steps: Sequence[Step], max_steps: int) -> list[str]:
    lines = [
        f"{_STEP[step.state]} {shorten(step.title, 80)}" + (f": {shorten(step.detail, 80)}" if step.detail else "")
        for step in steps[-max_steps:]
    ]
    if len(steps) <= max_steps:
        return lines
    return [ngettext("… {n} earlier step", "… {n} earlier steps", len(steps) - max_steps), *lines]
