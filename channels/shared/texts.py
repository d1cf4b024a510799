"""Texts that every platform shares: progress lines, answers to clicks, trouble."""

from __future__ import annotations

from collections.abc import Sequence

from agent.blocks import Ask, Plan, Step, View

NOT_STORED = "I can't save messages right now. You don't need to send it again: I'll pick yours up as soon as I can."
NOT_YOURS = "Only the person who was asked can answer this."
ANSWERED = "Someone has already answered this."
REPEAT_MARK = "↻ Possibly a repeat:"  # before what may be shown twice
_STEP = {"running": "▸", "done": "✓", "failed": "✗", "stopped": "■"}
_ITEM = {"pending": "☐", "running": "▸", "done": "☑"}


def shorten(text: str, most: int) -> str:
    """On one line of at most so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def progress_lines(view: View, steps: int) -> list[str]:
    """Plan and latest steps, a line each."""
    return [*_plan_lines(view.plan), *_step_lines(list(view.steps.values()), steps)]


def question_hint(ask: Ask, *, fits: bool, label: int) -> str:
    """What has to be said in words besides the buttons, which hold `label` characters each: options that do not `fit`
    into buttons or are cut there, and whether words will do."""
    lines = []
    if not fits or any(len(option) > label for option in ask.options):
        lines += [f"{number}. {' '.join(option.split())}" for number, option in enumerate(ask.options, 1)]
    if ask.options and ask.free_text:
        lines += ["", "_Choose, or just answer in words._" if fits else "_Just answer in words._"]
    elif ask.options and not fits:
        lines += ["", "_Answer with one of these._"]
    return "\n".join(lines).strip()


def _plan_lines(plan: Plan | None) -> list[str]:
    return [f"{_ITEM[item.state]} {shorten(item.title, 100)}" for item in plan.items[:15]] if plan else []


def _step_lines(steps: Sequence[Step], most: int) -> list[str]:
    lines = [
        f"{_STEP[step.state]} {shorten(step.title, 80)}" + (f": {shorten(step.detail, 80)}" if step.detail else "")
        for step in steps[-most:]
    ]
    return [f"… {len(steps) - most} earlier", *lines] if len(steps) > most else lines
