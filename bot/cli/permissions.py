"""`fawn permissions try`: replay recorded calls under another configuration. It only reads the database."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from agent.foreign_text import printable_line
from agent.permissions.rules import GRANTED
from bot.admin.replay import PRICE, RATE, REFUSED, ROLE, RefusedWork, Replay, ReplayedCall
from bot.base.exit_codes import CONFIG, FAULT, OK, fail
from bot.cli.command import Command, ConfiguredCommand
from bot.config.addresses import person_address
from bot.config.schema import Config
from bot.config.source import load_variant
from bot.database.database import Execute
from bot.database.migrate import head_revision
from bot.rights.budgets import describe_budget, format_money
from bot.rights.known_people import names_of_channel
from bot.service.store import NoStore, has_store, read_store, store_revision
from catalogue import N_, _, ngettext

DAY_SECONDS = 86400
MAX_DAYS = 3650
MAX_LISTED = 200  # calls in the text; JSON has all
MAX_SUBJECT_CHARS = 160  # the same
VERDICTS = {
    "allow": N_("runs"),
    GRANTED: N_("runs by a grant"),
    "ask": N_("asks"),
    "deny": N_("denied"),
    RATE: N_("above the rate limit"),
    REFUSED: N_("request refused"),
}
REASONS = {
    ROLE: N_("a role that may not have work done"),
    PRICE: N_("a model without a known price, under a budget in money"),
}


@dataclass(slots=True)
class Tally:
    """How many calls have a verdict: `then` as recorded, `tried` under the file. `saved` is in micro-dollars."""

    then: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    saved: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"calls": self.then.total(), "now": {**self.then}, "tried": {**self.tried}, "saved": self.saved / 1e6}


@dataclass(slots=True)
class Report:
    """What the replay found, as a whole, by person and by tool."""

    whole: Tally = field(default_factory=Tally)
    people: dict[str, Tally] = field(default_factory=dict)
    tools: dict[str, Tally] = field(default_factory=dict)
    calls: list[ReplayedCall] = field(default_factory=list)  # all, or those with another verdict
    first: float | None = None  # when the oldest call was recorded
    changed: int = 0
    cut: int = 0

    def add_call(self, call: ReplayedCall, *, keep: bool) -> None:
        """Count a call."""
        self.first = min(self.first or call.row.at, call.row.at)
        mine = (self.people.setdefault(call.row.person, Tally()), self.tools.setdefault(call.row.tool, Tally()))
        for tally in (self.whole, *mine):
            tally.then[call.row.verdict] += 1
            tally.tried[call.verdict] += 1
        self.changed += call.has_changed
        self.cut += call.row.is_cut
        if keep or (call.has_changed and len(self.calls) < MAX_LISTED):
            self.calls.append(call)

    def add_refused(self, work: RefusedWork) -> None:
        """Count what a refusal saved."""
        self.whole.saved += work.cost
        self.people.setdefault(work.person, Tally()).saved += work.cost


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("try",))
    words = _("a configuration, or a file with only `permissions`, `team`, `budgets` or `rate_limits`")
    parser.add_argument("file", metavar="FILE", type=Path, help=words)
    parser.add_argument("--days", type=int, default=30, metavar="N", help=_("of the last N days; default: 30"))
    parser.add_argument("--json", action="store_true", help=_("print it as one JSON object"))


def _try(arguments: argparse.Namespace, config: Config) -> int:
    if not 1 <= arguments.days <= MAX_DAYS:
        return fail(_("--days is a number from 1 to {most}", most=MAX_DAYS), CONFIG)
    if not arguments.file.is_file():
        return fail(_("{file}: there is no such file", file=arguments.file), CONFIG)
    variant = load_variant(arguments.file, Path(arguments.config) if arguments.config else None)
    if not has_store(config):
        return fail(NoStore.of(config), FAULT)
    if store_revision(config) != head_revision():
        return fail(_("the database is one of another version of Fawn: start this version's service once"), FAULT)
    report = Report()
    with read_store(config, snapshot=False) as execute:
        replay = Replay(execute, variant, time.time() - arguments.days * DAY_SECONDS)
        for call in replay.run():
            report.add_call(call, keep=arguments.json)
        for work in replay.refused:
            report.add_refused(work)
        if arguments.json:
            print(json.dumps(_as_json(report, replay, arguments.days)))
        else:
            print(*_render(report, replay, execute, arguments, config), sep="\n")
    return OK


def _as_json(report: Report, replay: Replay, days: int) -> dict[str, Any]:
    return {
        "days": days,
        "since": replay.since,
        "first_call": report.first,
        **report.whole.as_json(),
        "cost": replay.cost / 1e6,
        "cut": report.cut,
        "people": {name: tally.as_json() for name, tally in report.people.items()},
        "tools": {name: tally.as_json() for name, tally in report.tools.items()},
        "refused": [_refused_as_json(work) for work in replay.refused],
        "list": [_call_as_json(call) for call in report.calls],
    }


def _call_as_json(call: ReplayedCall) -> dict[str, Any]:
    row = call.row
    named = {name: getattr(row, name) for name in ("at", "thread", "person", "run", "tool", "kind", "subject")}
    return {**named, "cut": row.is_cut, "now": row.verdict, "tried": call.verdict, "rule": call.rule}


def _refused_as_json(work: RefusedWork) -> dict[str, Any]:
    named = {name: getattr(work, name) for name in ("at", "run", "person", "chat", "reason", "tokens", "unpriced")}
    period = work.limit.config.period if work.limit else ""
    return {**named, "period": period, "model_calls": work.calls, "saved": work.cost / 1e6}


def _render(
    report: Report, replay: Replay, execute: Execute, arguments: argparse.Namespace, config: Config
) -> Iterator[str]:
    """Yield the lines of the text."""
    zone = config.zone
    names = _names(execute, [*report.people, *(work.person for work in replay.refused)])
    whole = report.whole
    if not whole.then and not replay.tokens:
        yield _("Nothing was recorded in the last {days} days, so there is nothing to try.", days=arguments.days)
        return
    first = f"{datetime.fromtimestamp(report.first, zone):%Y-%m-%d %H:%M}" if report.first else _("none")
    text = N_("The last {days} days. Recorded tool calls: {calls}, the first: {first}.")
    yield _(text, days=arguments.days, calls=whole.then.total(), first=first)
    yield ngettext(
        "With {file}, Fawn would have asked {n} time (now {asked}), denied {denies} calls (now {denied}), and cost"
        " {saved} less (now {cost}).",
        "With {file}, Fawn would have asked {n} times (now {asked}), denied {denies} calls (now {denied}), and cost"
        " {saved} less (now {cost}).",
        whole.tried["ask"],
        file=arguments.file,
        asked=whole.then["ask"],
        denies=whole.tried["deny"],
        denied=whole.then["deny"],
        saved=format_money(whole.saved),
        cost=format_money(replay.cost),
    )
    if above := whole.tried[RATE]:
        yield _("Calls above a rate limit: {n}", n=above)
    if lost := whole.tried[REFUSED]:
        yield _("Calls of requests that would have been refused: {n}", n=lost)
    if unpriced := sum(work.unpriced for work in replay.refused):
        yield _("Model calls without a known price that would not have been made: {n}", n=unpriced)
    if report.cut:
        yield _("Calls of which only the beginning is known and was judged: {n}", n=report.cut)
    yield from _groups(_("By person:"), report.people, lambda key: names.get(key, key))
    yield from _groups(_("By tool:"), report.tools, str)
    yield from _render_refused(replay.refused, names, zone)
    yield from _render_calls(report, names, zone)


def _groups(title: str, groups: Mapping[str, Tally], name_of: Callable[[str], str]) -> Iterator[str]:
    if groups:
        yield f"\n{title}"
    for key, tally in sorted(groups.items(), key=lambda each: (-each[1].tried["ask"], each[0])):
        text = N_("{name}: asked {asks} (now {asked}), denied {denies} (now {denied}), refused {refused}, {saved} less")
        values = {"asks": tally.tried["ask"], "asked": tally.then["ask"], "refused": tally.tried[REFUSED]}
        values |= {"denies": tally.tried["deny"], "denied": tally.then["deny"]}
        yield "  " + _(text, name=name_of(key) or _("nobody"), saved=format_money(tally.saved), **values)


def _render_refused(refused: Iterable[RefusedWork], names: Mapping[str, str], zone: ZoneInfo | None) -> Iterator[str]:
    works = sorted(refused, key=lambda work: work.at)
    if works:
        yield "\n" + _("Requests and background work that would have been refused:")
    for work in works[:MAX_LISTED]:
        reason = describe_budget(work.limit.config) if work.limit else _(REASONS[work.reason])
        saved = format_money(work.cost) if work.cost else _("{n} tokens", n=f"{work.tokens:,}")
        parts = (_time(work.at, zone), work.chat, names.get(work.person, work.person), reason, saved)
        yield "  " + "  ".join(filter(None, parts))
    if len(works) > MAX_LISTED:
        yield "  " + _("… and {n} more: --json has all", n=len(works) - MAX_LISTED)


def _render_calls(report: Report, names: Mapping[str, str], zone: ZoneInfo | None) -> Iterator[str]:
    if not report.changed:
        yield "\n" + _("No call would have ended differently.")
        return
    yield "\n" + _("Calls with another verdict (now → then under the file):")
    for call in report.calls:
        row = call.row
        subject = printable_line(row.subject, MAX_SUBJECT_CHARS)
        verdicts = f"{_(VERDICTS[row.verdict])} → {_(VERDICTS[call.verdict])}"
        rule = f"({call.rule})" if call.rule and call.rule != GRANTED else ""
        person = names.get(row.person, row.person)
        yield "  " + "  ".join(
            filter(None, (_time(row.at, zone), row.thread, person, row.tool, subject, verdicts, rule))
        )
    if report.changed > len(report.calls):
        yield "  " + _("… and {n} more: --json has all", n=report.changed - len(report.calls))


def _names(execute: Execute, people: Iterable[str]) -> dict[str, str]:
    """Return person → name and id, of those whose name is known."""
    channels = {person.partition(":")[0] for person in people if person}
    known = {channel: names_of_channel(execute, channel) for channel in channels}
    return {
        f"{channel}:{id}": f"{printable_line(name, 60)} ({person_address(channel, id)})"
        for channel, names in known.items()
        for id, name in names.items()
    }


def _time(at: float, zone: ZoneInfo | None) -> str:
    return f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M}"


COMMANDS: Mapping[str, Command] = {"permissions": ConfiguredCommand(_try, _add_arguments, accounts=True)}
