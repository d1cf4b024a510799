"""`/usage`: what the models have cost, of a person, a chat, or everybody; with a chart of the last 30 days.

Draw a chart of bars.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from agent.messages import Thread
from agent.spending import PlannedCall
from bot.base.background import Effect
from bot.base.plain_text import without_formatting
from bot.base.stored_files import command_folder
from bot.commands.call import CommandCall
from bot.config.addresses import person_address
from bot.database.database import Database
from bot.journey.outbox import files_payload
from bot.rights.budgets import describe_left, format_money, limits_of, period_bounds
from bot.rights.current import Current
from bot.rights.deeds import SEE_TEAM_USAGE
from bot.storage import outbox, people, usage
from bot.storage.budgets import read_counter
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.usage import Payer, Spending, by_day
from catalogue import N_, _, format_duration, ngettext
from channels.base import OutgoingFile

WIDTH, HEIGHT, MARGIN = 720, 240, 28  # pixels
BAR, GRID, INK = "#3b7dd8", "#dddddd", "#444444"
MAX_LABELS = 8


@dataclass(frozen=True, slots=True)
class BarChart:
    """A bar for each value. `top` names the largest value; some of the labels are shown."""

    values: Sequence[float]
    labels: Sequence[str]
    top: str


def draw_bars(chart: BarChart) -> bytes:
    """Return a PNG."""
    from PIL import Image, ImageDraw

    values, labels = chart.values, chart.labels
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    floor, step = HEIGHT - MARGIN, (WIDTH - 2 * MARGIN) / len(values)
    highest = max(values) or 1.0
    draw.line((MARGIN, MARGIN, WIDTH - MARGIN, MARGIN), GRID)
    draw.line((MARGIN, floor, WIDTH - MARGIN, floor), INK)
    draw.text((MARGIN, MARGIN - 14), chart.top, INK)
    every = -(-len(labels) // MAX_LABELS)
    for number, (value, label) in enumerate(zip(values, labels, strict=True)):
        left = MARGIN + number * step
        if value > 0:
            height = max(1.0, value / highest * (floor - MARGIN))
            draw.rectangle((left + 2, floor - height, left + step - 2, floor - 1), BAR)
        if (len(labels) - 1 - number) % every == 0:
            draw.text((left, floor + 6), label, INK)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


CHART_JOB = "usage-chart"
CHART_DAYS = 30
CHART_NAME = "usage.png"
MAX_LISTED = 8
HEADINGS = {
    "person": N_("**Your usage**"),
    "chat": N_("**The usage of this chat**"),
    "everything": N_("**The usage of everybody**"),
}


def usage_command(call: CommandCall) -> str:
    """Show the usage of this person, of this chat (`chat`), or of everybody (`team`), which operators may see."""
    payer = Payer(0, call.conversation, call.thread, call.message.author.id)
    match call.words.lower():
        case "":
            return _describe(call, payer, "person", payer.person)
        case "chat":
            return _describe(call, payer, "chat", payer.chat)
        case "team" if call.may(SEE_TEAM_USAGE):
            return _describe(call, payer, "everything", "all")
        case "team":
            return call.refuse("usage team", SEE_TEAM_USAGE)
    return _(
        "Use `{own}`, `{chat}` or `{team}`.",
        own=command_hint("usage"),
        chat=command_hint("usage chat"),
        team=command_hint("usage team"),
    )


def _describe(call: CommandCall, payer: Payer, scope: str, key: str) -> str:
    zone = call.current.config.zone
    day, month = (period_bounds(period, call.now, zone)[0] for period in ("day", "month"))
    this_month = usage.spent(call.execute, scope, key, month)
    lines = [
        _(HEADINGS[scope]),
        _("- today: {spending}", spending=_format(usage.spent(call.execute, scope, key, day))),
        _("- this month: {spending}", spending=_format(this_month)),
        *_budgets(call, payer, scope, zone),
    ]
    seconds, cost = usage.sandbox_use(call.execute, scope, key, month)
    if seconds:
        lines.append(
            _("- sandboxes this month: {time}, {money}", time=format_duration(seconds), money=format_money(cost))
        )
    if this_month.calls:
        lines += _table(call, scope, key, month, "model", _("This month by model:"))
        if scope == "everything":
            lines += _table(call, scope, key, month, "person", _("This month by person:"))
    _send_chart(call, scope, key)
    return "\n".join(lines)


def _format(spending: Spending) -> str:
    tokens, calls = f"{spending.tokens:,}", spending.calls
    if not calls:
        return format_money(spending.cost) if spending.cost else _("nothing")
    if spending.unpriced == calls:
        return ngettext(
            "{tokens} tokens in {n} call, whose price is unknown",
            "{tokens} tokens in {n} calls, whose price is unknown",
            calls,
            tokens=tokens,
        )
    money = format_money(spending.cost)
    if spending.unpriced:
        return ngettext(
            "{money} and {unpriced} calls of unknown price; {tokens} tokens in {n} call",
            "{money} and {unpriced} calls of unknown price; {tokens} tokens in {n} calls",
            calls,
            money=money,
            unpriced=spending.unpriced,
            tokens=tokens,
        )
    return ngettext(
        "{money}, {tokens} tokens in {n} call",
        "{money}, {tokens} tokens in {n} calls",
        calls,
        money=money,
        tokens=tokens,
    )


def _budgets(call: CommandCall, payer: Payer, scope: str, zone: ZoneInfo | None) -> list[str]:
    """Return a line for each budget of this scope: how much of it is left, and until when."""
    config = call.current.config
    limits = limits_of(config.budgets, payer, PlannedCall("", "", "", 0, 0), call.now, zone)
    lines = []
    for limit in limits:
        if limit.key.scope == scope:
            money, tokens, _held_money, _held_tokens = read_counter(call.execute, limit.key)
            lines.append(describe_left(limit.config, limit.key.until, zone, money, tokens))
    return lines


def _table(call: CommandCall, scope: str, key: str, since: float, column: str, heading: str) -> list[str]:
    rows = usage.spent_by(call.execute, column, scope, key, since, MAX_LISTED)
    return ["", heading, *(f"- {_name(call, column, row.name)}: {_format(row)}" for row in rows)]


def _name(call: CommandCall, column: str, name: str) -> str:
    if column == "model":
        return f"`{name}`"
    channel, _colon, person = name.partition(":")
    known = people.find_person(call.execute, channel, person)
    if known and known.name:
        return without_formatting(known.name)
    return f"`{person_address(channel, person)}`" if name else _("unknown")


def _send_chart(call: CommandCall, scope: str, key: str) -> None:
    """Have the chart drawn by a job: drawing takes too long for a transaction."""
    payload = {"scope": scope, "of": key, "thread": str(call.thread), "message": call.message.key, "now": call.now}
    enqueue_job(call.execute, key=f"{CHART_JOB}:{call.message.key}", kind=CHART_JOB, payload=payload)


@dataclass(frozen=True, slots=True)
class ChartJobs:
    """Handles the jobs that draw charts."""

    store: Database
    current: Current

    async def draw(self, job: BackgroundJob) -> Effect | None:
        """Draw the cost of each day, the tokens where no price is known. Return what enqueues the picture.

        The outbox deletes the copy.
        """
        given, config = job.arguments, self.current.config
        zone = config.zone
        since = given["now"] - (CHART_DAYS + 1) * 86400
        read = partial(usage.spent_by_time, scope=given["scope"], key=given["of"], since=since)
        chart = _chart_of(await self.store.run(read, durable=False), given["now"], zone)
        if chart is None:
            return None
        path = command_folder(config.data_dir, "usage", given["message"]) / CHART_NAME
        size = await asyncio.to_thread(_write_chart, path, chart)
        payload = files_payload([OutgoingFile(path, CHART_NAME, size)])
        thread, key = Thread.parse(given["thread"]), f"usage:{given['message']}"
        return partial(outbox.enqueue_files, thread=thread, payload=payload, key=key, now=time.time())


def _chart_of(spent: Sequence[tuple[float, Spending]], now: float, zone: ZoneInfo | None) -> BarChart | None:
    """Return the chart of the last days; None if there is nothing to show."""
    today = datetime.fromtimestamp(now, zone).date()
    days = [today - timedelta(days=back) for back in range(CHART_DAYS - 1, -1, -1)]
    found = by_day(spent, zone)
    rows = [found.get(day, Spending()) for day in days]
    if not any(row.tokens for row in rows):
        return None
    labels = [f"{day:%m-%d}" for day in days]
    if any(row.cost for row in rows):
        values = [row.cost / 1e6 for row in rows]
        return BarChart(values, labels, format_money(round(1e6 * max(values))))
    counts = [row.tokens for row in rows]
    return BarChart(counts, labels, f"{max(counts):,} tokens")  # the picture's font has no Chinese


def _write_chart(path: Path, chart: BarChart) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.write_bytes(draw_bars(chart))
