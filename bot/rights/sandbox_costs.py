"""Count the use of sandboxes as part of what people use and what it costs, in the rows of the model calls."""

from __future__ import annotations

from agent.models.prices import FREE, OWN_PRICE
from agent.spending import LEAD, SANDBOX, ModelCall, PlannedCall
from bot.config.schema import Config
from bot.database.database import Execute
from bot.rights.budget_limits import limits_of
from bot.storage import usage
from bot.storage.budgets import book
from bot.storage.usage import Payer, PricedCall


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
