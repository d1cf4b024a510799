"""Offer `/usage`, and what a plan holds. Every call counts without this feature, too."""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.context import TurnContext
from bot.base.jobs import JobKind
from bot.budgets.checks import list_checks
from bot.budgets.command import CHART_JOB, ChartJobs, usage_command
from bot.budgets.expected_cost import RequestCosts
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.database.database import Execute
from bot.journey.running_turn import Account
from bot.journey.turn_part import EndedTurn, OutboxRow, TurnPart
from bot.rights.claimed_run import ClaimedRun
from bot.storage import personal
from bot.storage.plan_holds import release_ended
from catalogue import N_


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
