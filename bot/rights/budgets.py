"""Decide which budgets apply to a call or a person, and say so to people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from agent.messages import Thread
from agent.models.prices import FREE, OWN_PRICE
from agent.spending import EMBEDDING, LEAD, SANDBOX, VOICE, ModelCall, PlannedCall, Refusal
from bot.config.addresses import chat_names, person_names, workspace_names
from bot.config.schema import Config
from bot.config.spending import BudgetConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.web_people import true_person
from bot.storage import usage
from bot.storage.budgets import CounterKey, book, read_counter
from bot.storage.usage import Payer, PricedCall
from catalogue import N_, _, join_sentences

USED_UP = {
    "turn": N_("This request has used up its budget of {budget}."),
    "person": N_("Your budget of {budget} is used up."),
    "chat": N_("The budget of this chat, {budget}, is used up."),
    "workspace": N_("The budget of this workspace, {budget}, is used up."),
    "agent": N_("The budget of this agent, {budget}, is used up."),
    "model": N_("The budget of this model, {budget}, is used up."),
    "everything": N_("The budget of everybody together, {budget}, is used up."),
}
RESERVED = {
    "person": N_("What is left of your budget of {budget} is reserved for a plan that is being carried out."),
    "chat": N_("What is left of this chat's budget of {budget} is reserved for a plan that is being carried out."),
    "workspace": N_(
        "What is left of this workspace's budget of {budget} is reserved for a plan that is being carried out."
    ),
    "everything": N_(
        "What is left of everybody's budget of {budget} is reserved for a plan that is being carried out."
    ),
}
NEARLY_USED_UP = {
    "turn": N_("More than {share} of this request's budget of {budget} is used."),
    "person": N_("More than {share} of your budget of {budget} is used."),
    "chat": N_("More than {share} of this chat's budget of {budget} is used."),
    "workspace": N_("More than {share} of this workspace's budget of {budget} is used."),
    "agent": N_("More than {share} of this agent's budget of {budget} is used."),
    "model": N_("More than {share} of this model's budget of {budget} is used."),
    "everything": N_("More than {share} of everybody's budget of {budget} is used."),
}
SET_MODEL_PRICE = N_("An operator can set `price` of this model in the configuration (`models`).")
SET_PRICE = {
    VOICE: N_("An operator can set `price_per_minute` in the configuration (`voice`)."),
    EMBEDDING: N_("An operator can set `price_per_million_tokens` in the configuration (`memory.embeddings`)."),
}


def format_money(micro_dollars: int) -> str:
    """Return an amount in dollars; a small one with four digits."""
    dollars = micro_dollars / 1e6
    return f"${dollars:,.4f}" if 0 < dollars < 0.1 else f"${dollars:,.2f}"


def _budget(config: BudgetConfig, *, money: bool) -> str:
    if money and config.money is not None:
        amount = format_money(config.money)
    else:
        amount = _("{n} tokens", n=f"{config.tokens or 0:,}")
    if config.scope == "turn":
        return amount
    return _("{amount} a day", amount=amount) if config.period == "day" else _("{amount} a month", amount=amount)


def describe_budget(config: BudgetConfig) -> str:
    """Return which budget this is, for operators."""
    text = N_("the budget of {which} ({scope}), {budget}") if config.which else N_("the budget `{scope}`, {budget}")
    return _(text, which=config.which, scope=config.scope, budget=_budget(config, money=config.money is not None))


def refusal_of(config: BudgetConfig, until: float, zone: ZoneInfo | None, money: int, tokens: int) -> Refusal:
    """Return why a call is refused: whose budget it is, how much, when it is renewed, who can raise it."""
    of_money = config.money is not None and money >= config.money
    what = _(USED_UP[config.scope], budget=_budget(config, money=of_money))
    raises = _("An operator can raise it: `budgets` in the configuration.")
    if config.scope == "turn":
        return Refusal(what, join_sentences(_("Send a smaller request."), raises), scope=config.scope)
    todo = join_sentences(_renewed(until, zone), raises)
    return Refusal(what, todo, other_model=config.scope == "model", scope=config.scope)


def reserved_for_plan(config: BudgetConfig) -> Refusal:
    """Return why a call is refused: plans that others agreed to hold the rest of a budget."""
    budget = _budget(config, money=config.money is not None)
    raises = _("An operator can raise it: `budgets` in the configuration.")
    return Refusal(
        _(RESERVED[config.scope], budget=budget),
        join_sentences(_("Send it again when the work on that plan has ended."), raises),
        scope=config.scope,
    )


def warning_of(config: BudgetConfig, until: float, zone: ZoneInfo | None, percent: int) -> str:
    """Return what the end of a turn says about a budget that is nearly used up."""
    budget = _budget(config, money=config.money is not None)
    nearly = _(NEARLY_USED_UP[config.scope], share=f"{percent} %", budget=budget)
    return nearly if config.scope == "turn" else join_sentences(nearly, _renewed(until, zone))


def _renewed(until: float, zone: ZoneInfo | None) -> str:
    return _("It is renewed at {time}.", time=f"{datetime.fromtimestamp(until, zone):%Y-%m-%d %H:%M}")


def unknown_price(kind: str, model: str) -> Refusal:
    """Return why a model without a known price is refused under a budget in money."""
    return Refusal(
        _("I don't know what the model {model} costs, and a budget in money applies here.", model=model),
        _(SET_PRICE.get(kind, SET_MODEL_PRICE)),
        other_model=True,
    )


def describe_left(config: BudgetConfig, until: float, zone: ZoneInfo | None, money: int, tokens: int) -> str:
    """Return a line about how much of a budget is left."""
    of_money = config.money is not None
    if config.money is not None:
        left = format_money(max(0, config.money - money))
    else:
        left = _("{n} tokens", n=f"{max(0, (config.tokens or 0) - tokens):,}")
    at = f"{datetime.fromtimestamp(until, zone):%Y-%m-%d %H:%M}"
    return _("- {left} of {budget} are left until {time}", left=left, budget=_budget(config, money=of_money), time=at)


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
    thread = payer.thread
    keys = {
        "turn": (str(payer.run), ()),
        "person": (payer.person, person_names(*true_person(thread.channel, payer.requester))),
        "chat": (payer.chat, chat_names(thread)),
        "workspace": (payer.workspace, workspace_names(thread)),
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


def charge_sandbox(execute: Execute, config: Config, payer: Payer, seconds: float, now: float) -> None:
    """Record that a person had a sandbox in use for so long, which ended now; its cost counts in their budgets."""
    price = config.sandbox.price_per_hour
    cost = round(seconds / 3600 * price * 1e6)
    call = ModelCall(LEAD, SANDBOX, SANDBOX, 0, 0, 0, 0, seconds, now)
    usage.record_calls(execute, payer, [PricedCall(call, cost, OWN_PRICE if price else FREE)])
    if cost:
        zone = config.zone
        for limit in limits_of(config.budgets, payer, PlannedCall(LEAD, SANDBOX, SANDBOX, 0, 0), now, zone):
            book(execute, limit.key, cost, 0)
