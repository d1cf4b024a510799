"""Decide which budgets apply to a call or a person, and in which period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from agent.messages import Thread
from agent.spending import LEAD, PlannedCall
from bot.config.spending import BudgetConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.rights.budget_texts import refusal_of
from bot.storage.budgets import CounterKey, read_counter
from bot.storage.usage import Payer
from catalogue import join_sentences

TURN_SECONDS = 86400.0  # how long the counter of a turn is kept at least
SCOPES = ("turn", "person", "chat", "workspace", "agent", "model", "everything")
STANDING_SCOPES = ("person", "chat", "workspace", "everything")


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget as it applies to one call."""

    config: BudgetConfig
    key: CounterKey

    def share(self, money: int, tokens: int) -> float:
        """Return the used share of the budget; 1.0: nothing is left."""
        parts = [(money, self.config.money), (tokens, self.config.tokens)]
        return max([used / limit if limit else 1.0 for used, limit in parts if limit is not None], default=0.0)

    def without_bounds(self) -> Limit:
        """Return it with a key that is the same for all times of its period."""
        return replace(self, key=replace(self.key, since=0.0, until=0.0))


@dataclass(frozen=True, slots=True)
class StandingBudgets:
    """The budgets that apply before it is known which model works, to decide whether a person can pay for work."""

    budgets: Sequence[BudgetConfig] = ()
    time_zone: str = ""

    @classmethod
    def of(cls, budgets: Sequence[BudgetConfig], time_zone: str) -> StandingBudgets:
        """Return those of all budgets that do not depend on the turn, agent or model."""
        return cls(tuple(entry for entry in budgets if entry.scope in STANDING_SCOPES), time_zone)

    @property
    def of_persons(self) -> StandingBudgets:
        """Those of single persons."""
        return replace(self, budgets=tuple(entry for entry in self.budgets if entry.scope == "person"))

    @property
    def _zone(self) -> ZoneInfo | None:
        return ZoneInfo(self.time_zone) if self.time_zone else None

    def find_used_up(self, execute: Execute, place: Thread, person: str, now: float) -> Limit | None:
        """Return a budget for work of this person in this place of which nothing is left."""
        payer, call = Payer(0, "", place, person), PlannedCall(LEAD, "", "turn", 0, 0)
        for limit in limits_of(self.budgets, payer, call, now, self._zone):
            money, tokens, *_held = read_counter(execute, limit.key)
            if limit.share(money, tokens) >= 1.0:
                return limit
        return None

    def describe_used_up(self, limit: Limit) -> str:
        """Say whose budget is used up, when it is renewed, and who can raise it."""
        refusal = refusal_of(
            limit.config, limit.key.until, self._zone, limit.config.money or 0, limit.config.tokens or 0
        )
        return join_sentences(refusal.what, refusal.what_to_do)


def record_used_up(
    execute: Execute, limit: Limit, place: Thread, person: str, kind: str, run: int | None = None
) -> None:
    """Note in the audit that a call or work of this kind was refused."""
    what = {"scope": limit.key.scope, "period": limit.key.period, "kind": kind}
    event = AuditEvent(AuditKind.BUDGET_REFUSED, place, person, run=run, what=what, result="refused")
    audit.record(execute, event)


def limits_of(
    budgets: Sequence[BudgetConfig], payer: Payer, planned: PlannedCall, now: float, zone: ZoneInfo | None
) -> list[Limit]:
    """Return the budgets that apply to a call. One for this person, chat, … replaces that for all others."""
    thread, channel = payer.thread, payer.thread.channel
    keys = {
        "turn": (str(payer.run), ()),
        "person": (payer.person, payer.names),
        "chat": (payer.chat, (thread.chat, f"{channel}:{thread.chat}")),
        "workspace": (payer.workspace, (thread.workspace, f"{channel}:{thread.workspace}")),
        "agent": (planned.agent, (planned.agent,)),
        "model": (planned.model, (planned.model,)),
        "everything": ("all", ()),
    }
    found: dict[tuple[str, str], Limit] = {}
    for entry in sorted(budgets, key=lambda each: bool(each.which)):
        key, names = keys[entry.scope]
        if key and (not entry.which or entry.which in names):
            period, since, until = period_of(entry, now, zone)
            found[entry.scope, period] = Limit(entry, CounterKey(entry.scope, key, period, since, until))
    return sorted(found.values(), key=lambda limit: SCOPES.index(limit.key.scope))


def period_of(entry: BudgetConfig, now: float, zone: ZoneInfo | None) -> tuple[str, float, float]:
    """Return the name of the budget's present period, its begin and its end in unix time."""
    if entry.scope == "turn":
        return "turn", 0.0, now + TURN_SECONDS
    since, until = period_bounds(entry.period, now, zone)
    return f"{datetime.fromtimestamp(now, zone):{'%Y-%m-%d' if entry.period == 'day' else '%Y-%m'}}", since, until


def period_bounds(period: str, now: float, zone: ZoneInfo | None) -> tuple[float, float]:
    """Return when the day or month of a time begins and ends: at midnight there, whatever its clocks do."""
    first = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if period == "month":
        first = first.replace(day=1)
    later = first + timedelta(days=1 if period == "day" else 32)  # in local time
    return first.timestamp(), (later if period == "day" else later.replace(day=1)).timestamp()
