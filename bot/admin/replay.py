"""Replay recorded calls under another configuration: what it would have asked, denied and refused, and saved.

Calls are judged by the functions of the service, with the roles that people have under that configuration now. Grants
answer as they would have: those that are in force and older than the call, or whatever answered it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from zoneinfo import ZoneInfo

from agent.messages import Thread
from agent.permissions.rules import GRANTED, Judgement, grant_for
from agent.spending import PlannedCall
from bot.config.schema import Config
from bot.config.team import Right, RoleConfig
from bot.database.database import Execute
from bot.rights.approvals import find_approval_rule
from bot.rights.budgets import Limit, limits_of, period_bounds
from bot.rights.current import Current
from bot.rights.permissions import is_in_force, judge_for_roles
from bot.rights.rates import ToolAndMessageRates
from bot.storage.calls import CallRow, matching_grants, read_calls
from bot.storage.usage import Payer, UsageRow, read_usage

PAGE_ROWS = 1000
RATE, REFUSED = "rate", "refused"  # verdicts beside those of rules: over a limit of calls; its request was refused
ROLE, PRICE = "role", "price"  # why work is refused, beside the scope of a budget


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A call, and the verdict that it would have had, with the rule that led to it."""

    row: CallRow
    verdict: str
    rule: str = ""

    @property
    def has_changed(self) -> bool:
        """Whether people would have noticed: a grant answers like a rule that allows."""
        return _without_grant(self.row.verdict) != _without_grant(self.verdict)


@dataclass(slots=True)
class RefusedWork:
    """A request, or background work of somebody, that would have been refused from `at` on, and what that saved.

    `reason` is ROLE, PRICE (a budget in money, and a model without a price), or the scope of the used up `limit`.
    """

    at: float
    run: int
    person: str
    chat: str
    reason: str
    limit: Limit | None = None
    cost: int = 0  # micro-dollars
    tokens: int = 0
    calls: int = 0
    unpriced: int = 0

    def add(self, row: UsageRow) -> None:
        """Count a model call that would not have been sent."""
        self.cost += row.cost or 0
        self.tokens += row.input + row.output
        self.calls += 1
        self.unpriced += row.cost is None


@dataclass(slots=True)
class Replay:
    """The calls since a unix time under one configuration."""

    execute: Execute
    config: Config
    since: float
    refused: Sequence[RefusedWork] = ()
    cost: int = 0  # of all recorded model calls in this time, in micro-dollars
    tokens: int = 0

    def run(self) -> Iterator[ReplayedCall]:
        """Replay budgets, then yield every tool call with its verdict."""
        current = Current(self.config)
        access, rates = current.access, ToolAndMessageRates(current)

        @cache
        def role_of(thread: str, person: str) -> RoleConfig:
            return access.role_of(self.execute, Thread.parse(thread), person)

        work = self._replay_usage(role_of)
        self.refused = [each for each in work if each.at >= self.since]
        refused = {each.run: each.at for each in work if each.run}
        for row in self._calls():
            if row.at >= refused.get(row.run, float("inf")):
                yield ReplayedCall(row, REFUSED)
                continue
            found = judge_for_roles(self.config, [role_of(row.thread, who) for who in row.people.split()], row.use)
            if found.verdict == "ask" and self._is_granted(row, current):
                found = Judgement("allow", GRANTED)
            verdict = GRANTED if found.rule == GRANTED else found.verdict
            is_over = verdict != "deny" and rates.take(row.tool, row.at) is not None
            yield ReplayedCall(row, RATE if is_over else verdict, found.rule)

    def _calls(self) -> Iterator[CallRow]:
        after = 0
        while page := read_calls(self.execute, self.since, after, PAGE_ROWS):
            yield from page
            after = page[-1].id

    def _is_granted(self, row: CallRow, current: Current) -> bool:
        access, people = current.access, row.people.split()
        rule = find_approval_rule(access.team, row.use)
        if row.verdict == GRANTED and rule is None:
            return True
        rows = matching_grants(self.execute, row.conversation, grant_for(row.use))
        return any(each.given <= row.at and is_in_force(self.execute, access, each, rule, people) for each in rows)

    def _replay_usage(self, role_of: Callable[[str, str], RoleConfig]) -> list[RefusedWork]:
        """Return the work that would have been refused since the month began in which the time lies."""
        zone = self.config.zone
        spent: dict[object, tuple[int, int]] = {}
        found: dict[object, RefusedWork] = {}
        for row in self._usage(period_bounds("month", self.since, zone)[0]):
            if row.at >= self.since:
                self.cost += row.cost or 0
                self.tokens += row.input + row.output
            if row.run in found:
                found[row.run].add(row)
                continue
            limits = self._limits_of(row, zone)
            reason, limit = self._refusal_of(row, limits, spent, role_of)
            if reason:
                key = row.run or (row.at >= self.since, row.person, row.chat, reason, limit.key if limit else None)
                work = RefusedWork(row.at, row.run, row.person, row.chat, reason, limit)
                found.setdefault(key, work).add(row)
                continue
            for each in limits:
                money, tokens = spent.get(each.key, (0, 0))
                spent[each.key] = money + (row.cost or 0), tokens + row.input + row.output
        return [*found.values()]

    def _usage(self, since: float) -> Iterator[UsageRow]:
        after = (0.0, 0)
        while page := read_usage(self.execute, since, PAGE_ROWS, after):
            yield from page
            after = page[-1].at, page[-1].id

    def _limits_of(self, row: UsageRow, zone: ZoneInfo | None) -> list[Limit]:
        """Return the budgets of a call, without those of a place or a request that is not known any more."""
        channel, _colon, person = row.person.partition(":")
        thread = Thread.parse(row.chat) if row.chat else Thread(channel, "", "")
        planned = PlannedCall(row.agent, row.model, row.kind, row.input, row.output)
        limits = limits_of(self.config.budgets, Payer(row.run, "", thread, person), planned, row.at, zone)
        unknown = {*(() if row.chat else ("chat", "workspace")), *(() if row.run else ("turn",))}
        # The end of a turn's counter moves with the time: without it, all calls of the turn have one key.
        return [limit.without_bounds() for limit in limits if limit.key.scope not in unknown]

    def _refusal_of(
        self,
        row: UsageRow,
        limits: Sequence[Limit],
        spent: dict[object, tuple[int, int]],
        role_of: Callable[[str, str], RoleConfig],
    ) -> tuple[str, Limit | None]:
        """Return why a model call is refused, "" if it is not."""
        person = row.person.partition(":")[2]
        if person and row.chat and Right.TALK not in role_of(row.chat, person).rights:
            return ROLE, None
        if row.cost is None and any(limit.config.money is not None for limit in limits):
            return PRICE, None
        used_up = (limit for limit in limits if limit.share(*spent.get(limit.key, (0, 0))) >= 1.0)
        limit = next(used_up, None)
        return (limit.key.scope, limit) if limit else ("", None)


def _without_grant(verdict: str) -> str:
    return "allow" if verdict == GRANTED else verdict
