"""Check the server of embeddings: `fawn check` embeds one text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from agent.memory.embeddings import EmbeddingsFailed, embed_texts
from agent.settings.sections import EmbeddingsConfig
from agent.spending import Meter
from bot.base.findings import Check, Finding
from bot.config.schema import Config
from catalogue import _, localized

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
