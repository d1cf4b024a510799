"""The memory as a feature.

Check the server of embeddings: `fawn check` embeds one text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from agent.memory.embeddings import EmbeddingsFailed, embed_texts
from agent.settings.sections import EmbeddingsConfig
from agent.spending import Meter
from bot.base.background import JobKind
from bot.base.findings import Check, Finding
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.config.schema import Config
from bot.memory.command import memory_command
from bot.memory.service import EMBED_JOB, EMBED_SECONDS, FORGET_JOB, FORGET_SECONDS, MEMORY_JOB, MemoryService
from bot.storage import personal
from catalogue import N_, _, localized

TIMEOUT_SECONDS = 30.0


def list_checks(config: Config) -> Iterator[Check]:
    """Yield the check of the embeddings, if they are configured."""
    if config.memory.embeddings.base_url:
        yield Check(_("embeddings"), partial(check_embeddings, config.memory.embeddings))


async def check_embeddings(config: EmbeddingsConfig) -> list[Finding]:
    """Embed one text."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        [vector] = await embed_texts(config, ["Fawn"], TIMEOUT_SECONDS, Meter())
    except EmbeddingsFailed as error:
        fix = _("check `base_url`, which usually ends in /v1, `model` and `api_key` below `memory: {embeddings: …}`")
        return [Finding("fault", _("embeddings"), f"{config.base_url}: {localized(error)}", fix)]
    took = loop.time() - began
    values = {"model": config.model, "n": len(vector), "took": took, "limit": config.seconds}
    if took > config.seconds:
        text = _("{model} answers with {n} dimensions in {took:.2f} s; a turn waits {limit:g} s", **values)
        fix = _("raise `seconds`, or choose a faster server: a slower answer is not used")
        return [Finding("note", _("embeddings"), text, fix)]
    return [Finding("ok", _("embeddings"), _("{model} answers with {n} dimensions in {took:.2f} s", **values))]


MEMORY_WORDS = "forget N | export | off | on"


def _start(service: Service) -> Parts:
    memory = MemoryService(service.store, service.current, service.budgets)
    jobs = {
        MEMORY_JOB: JobKind(memory.extract),
        FORGET_JOB: JobKind(memory.forget_unused, FORGET_SECONDS),
        EMBED_JOB: JobKind(memory.embed_facts, EMBED_SECONDS),
    }
    return Parts(jobs, turn=memory.open_turn)


FEATURE = Feature(
    "memory",
    personal=personal.MEMORY,
    commands=(Command("memory", N_("what I remember of you"), memory_command, MEMORY_WORDS, rank=120),),
    checks=list_checks,
    start=_start,
)
