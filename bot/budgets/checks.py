"""Check that the prices are known which budgets in money need: calls of an unknown price are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from agent.models.prices import Priced, price_call
from agent.settings.models import ModelSettings
from agent.spending import EMBEDDING, LEAD, VOICE, ModelCall
from bot.base.findings import Check, Finding
from bot.config.schema import Config
from bot.rights.budget_texts import unknown_price
from catalogue import _


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
