"""Plan and steps in words: all of them while a turn runs, folded under a summary when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agent.blocks import FIRST_KEPT_STEPS, Final, PlanItem, Step, View
from catalogue import format_duration, ngettext
from channels.shared.texts import shorten

STEP_MARKS = {"running": "▸", "done": "✓", "failed": "✗", "stopped": "■"}
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
        failed = sum(step.state == "failed" for step in final.steps)
        words = count_steps(final.step_count, failed, final.seconds)
    elif final.plan or final.state in ("failed", "stopped"):
        words = format_duration(final.seconds)
    else:
        return ""
    return f"{STATE_MARKS[final.state]} {words}".strip()


def count_steps(count: int, failed: int, seconds: float) -> str:
    """Return how many steps a turn took, how many of them failed, and its time."""
    time = format_duration(seconds)
    if not failed:
        return ngettext("{n} step · {time}", "{n} steps · {time}", count, time=time)
    return ngettext(
        "{n} step, {failed} failed · {time}", "{n} steps, {failed} failed · {time}", count, failed=failed, time=time
    )


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


def step_line(step: Step, detail: str = "") -> str:
    line = f"{STEP_MARKS[step.state]} {shorten(step.title, MAX_TITLE_CHARS)}"
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
