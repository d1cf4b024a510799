"""Lay out what a reply shows around its words: plan and steps, buttons, the text below.

The data of such a button names the reply, so that a press long after has no effect on other work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from agent.blocks import FIRST_KEPT_STEPS, Ask, Final, PlanItem, Step, View
from agent.messages import Kind, Message
from catalogue import N_, _, format_duration, ngettext
from channels.base import Receipt
from channels.shared import texts
from channels.shared.texts import ANSWERED, NOT_YOURS, shorten, text_for

LABELS = {"stop": N_("⏹ Stop"), "retry": N_("↻ Retry")}
PREFIX = "command|"
PRESSED = {"stop": N_("Stopping…"), "retry": N_("Trying again…")}
NOT_ALLOWED = N_("You can't use this here.")


def live_button(view: View, reply: str) -> str:
    """Return the data of a live reply's button, or "". A plain answer is over too soon to be stopped."""
    return command_data("stop", reply) if view.steps or view.plan else ""


def final_button(final: Final, reply: str) -> str:
    """Return the data of a final reply's button, or "" unless it failed and its request can be repeated."""
    return command_data("retry", reply) if final.state == "failed" and final.retry else ""


def button_label(data: str) -> str:
    return _(LABELS[data.split("|")[1]])


def command_data(command: str, reply: str) -> str:
    """Return the data of a button, at most 35 characters. `reply` is the key of its SentMessages."""
    return f"{PREFIX}{command}|{reply}"


def as_command(click: Message, data: str) -> Message | None:
    """Return the command that a press sends, or None for the data of an option."""
    command, _, reply = data.removeprefix(PREFIX).partition("|")
    if not data.startswith(PREFIX) or command not in LABELS:
        return None
    return replace(click, kind=Kind.COMMAND, text=command, target=reply)


def is_stop(message: Message) -> bool:
    """Whether it is a press of Stop, whose button goes with the end of the reply."""
    return message.kind is Kind.COMMAND and message.text == "stop"


def press_refusal(message: Message, receipt: Receipt) -> str | None:
    """Return why a press has no effect, or None if it has one."""
    if receipt is Receipt.ACCEPTED:
        return None
    refused = NOT_ALLOWED if message.kind is Kind.COMMAND else NOT_YOURS
    return text_for(message, refused if receipt is Receipt.IGNORED else ANSWERED)


def press_toast(message: Message, receipt: Receipt) -> str:
    """Return what only the person sees who pressed a button."""
    command = message.kind is Kind.COMMAND
    done = text_for(message, PRESSED[message.text]) if command else f"✓ {message.text}"
    return press_refusal(message, receipt) or done


STEP_MARKS = {"running": "▸", "done": "✓", "failed": "✗", "denied": "⊘", "stopped": "■"}
ITEM_MARKS = {"pending": "☐", "running": "▸", "done": "☑"}
STATE_MARKS = {"done": "✅", "failed": "❌", "stopped": "⏹", "waiting": ""}  # before the summary
MAX_TITLE_CHARS, MAX_ITEM_CHARS, MAX_LIVE_ITEMS = 80, 100, 15
MAX_THINKING_CHARS = 300
MAX_STEPS_ABOVE = 8  # a text


def summary_line(final: Final) -> str:
    """Return state, steps and time of a turn, such as "✅ 6 steps, 1 failed · 3 min 2 s".

    "" for an answer that needed no steps. A failed or stopped turn always has a line.
    """
    if final.steps:
        words = count_steps(final.step_count, final.steps, final.seconds)
    elif final.plan or final.state in ("failed", "stopped"):
        words = format_duration(final.seconds)
    else:
        return ""
    return f"{STATE_MARKS[final.state]} {words}".strip()


def count_steps(count: int, steps: Sequence[Step], seconds: float) -> str:
    """Return how many steps a turn took, how many of them failed or were denied, and its time."""
    time = format_duration(seconds)
    failed, denied = (sum(step.state == state for step in steps) for state in ("failed", "denied"))
    if failed and denied:
        return ngettext(
            "{n} step, {failed} failed, {denied} denied · {time}",
            "{n} steps, {failed} failed, {denied} denied · {time}",
            count,
            failed=failed,
            denied=denied,
            time=time,
        )
    if denied:
        return ngettext(
            "{n} step, {denied} denied · {time}", "{n} steps, {denied} denied · {time}", count, denied=denied, time=time
        )
    if failed:
        return ngettext(
            "{n} step, {failed} failed · {time}", "{n} steps, {failed} failed · {time}", count, failed=failed, time=time
        )
    return ngettext("{n} step · {time}", "{n} steps · {time}", count, time=time)


def live_lines(view: View, max_steps: int) -> list[str]:
    """Return the plan and the latest steps of a running turn, a line each."""
    items = view.plan.items[:MAX_LIVE_ITEMS] if view.plan else ()
    steps = [*view.steps.values()]
    hidden = len(steps) - max_steps
    earlier = [ngettext("… {n} earlier step", "… {n} earlier steps", hidden)] if hidden > 0 else []
    return [*map(item_line, items), *earlier, *(step_line(step, step.progress) for step in steps[-max_steps:])]


def live_head(view: View, max_size: int, size: Callable[[str], int]) -> str:
    """Return the plan and the latest steps of a running turn, as they stand above its text."""
    return join_latest(live_lines(view, MAX_STEPS_ABOVE), max_size, size)


def notice_line(view: View) -> str:
    """Return the notice of a running turn, or ""."""
    return f"⏳ {shorten(view.notice.text, MAX_THINKING_CHARS)}" if view.notice else ""


def folded_lines(final: Final, *, details: bool = True) -> list[str]:
    """Return the plan and the steps of an ended turn, a line each, with the raw calls."""
    lines = [step_line(step, step.detail if details else "") for step in final.steps]
    if omitted := final.step_count - len(final.steps):
        lines.insert(FIRST_KEPT_STEPS, ngettext("… {n} more step", "… {n} more steps", omitted))
    return [*map(item_line, final.plan), *lines]


def step_title(step: Step) -> str:
    """Return what a step does, or was not allowed to do."""
    return _("Denied: {title}", title=step.title) if step.state == "denied" else step.title


def step_line(step: Step, detail: str = "") -> str:
    line = f"{STEP_MARKS[step.state]} {shorten(step_title(step), MAX_TITLE_CHARS)}"
    return f"{line}: {shorten(detail, MAX_THINKING_CHARS if step.thinking else MAX_TITLE_CHARS)}" if detail else line


def item_line(item: PlanItem) -> str:
    return f"{ITEM_MARKS[item.state]} {shorten(item.title, MAX_ITEM_CHARS)}"


def join_latest(lines: Iterable[str], max_size: int, size: Callable[[str], int] = len) -> str:
    """Join the latest lines that fit into `max_size`."""
    kept: Sequence[str] = [*lines]
    total = sum(size(line) + 1 for line in kept)
    while kept and total - 1 > max_size:
        total -= size(kept[0]) + 1
        kept = kept[1:]
    return "\n".join(kept)


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
