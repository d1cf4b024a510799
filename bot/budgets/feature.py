"""Offer `/usage`, and what a plan holds. Every call counts without this feature, too.

Check that the prices are known which budgets in money need: calls of an unknown price are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from agent.core.context import TurnContext
from agent.models.prices import Priced, price_call
from agent.settings.models import ModelSettings
from agent.spending import EMBEDDING, LEAD, VOICE, ModelCall
from bot.base.background import JobKind
from bot.base.findings import Check, Finding
from bot.budgets.command import CHART_JOB, ChartJobs, usage_command
from bot.budgets.expected_cost import RequestCosts
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.config.schema import Config
from bot.database.database import Execute
from bot.journey.running_turn import Account
from bot.journey.turn_part import EndedTurn, OutboxRow, TurnPart
from bot.rights.budgets import unknown_price
from bot.rights.claimed_run import ClaimedRun
from bot.storage import personal
from bot.storage.budgets import release_ended
from catalogue import N_, _


def list_checks(config: Config) -> Iterator[Check]:
    """Yield the check of the prices, if a budget is in money."""
    if any(each.money is not None for each in config.budgets):
        yield Check(_("budgets"), partial(asyncio.to_thread, check_prices, config), at_start=True)


def check_prices(config: Config) -> list[Finding]:
    """Name what a budget in money refuses, because its price is not known. Blocks: it reads the prices."""
    paid: list[tuple[str, Priced]] = [("turn", each) for each in config.models]
    paid += [(VOICE, config.voice)] if config.voice.base_url else []
    paid += [(EMBEDDING, config.memory.embeddings)] if config.memory.embeddings.base_url else []
    findings = []
    for kind, settings in paid:
        name = settings.name if isinstance(settings, ModelSettings) else settings.model
        call = ModelCall(LEAD, name, kind, 1000, 1000, 0, 0, 1.0, 0.0, audio_seconds=60.0 * (kind == VOICE))
        if price_call(settings, call)[0] is None:
            refusal = unknown_price(kind, name)
            findings.append(Finding("note", _("budgets"), refusal.what, refusal.what_to_do))
    return findings


def _start(service: Service) -> Parts:
    def open_turn(_job: ClaimedRun, account: Account) -> TurnPart:
        async def prepare(context: TurnContext) -> None:
            context.costs = RequestCosts(service.store, service.budgets, account.payer, account.meter)

        return TurnPart(prepare, _end)

    return Parts({CHART_JOB: JobKind(ChartJobs(service.store, service.current).draw)}, turn=open_turn)


def _end(execute: Execute, _ended: EndedTurn) -> Sequence[OutboxRow]:
    release_ended(execute)
    return ()


FEATURE = Feature(
    "budgets",
    personal=personal.BUDGETS,
    commands=(Command("usage", N_("what my models have cost"), usage_command, "chat | team", rank=180),),
    checks=list_checks,
    start=_start,
)
