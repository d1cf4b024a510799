"""Sentences about budgets, for people."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from agent.spending import EMBEDDING, VOICE, Refusal
from bot.config.spending import BudgetConfig
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
