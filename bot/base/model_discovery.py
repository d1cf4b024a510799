"""Ask an OpenAI-compatible server which models it offers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import aiohttp
import orjson

from agent.settings.models import ModelSettings
from agent.settings.network import choose_proxy, make_trust
from bot.config.loader import OPENAI

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5.0  # seconds: a start waits for it


async def offered_models(settings: ModelSettings, headers: Mapping[str, str] | None = None) -> list[str]:
    """Return the ids of `GET {base_url}/models`, in the server's order.

    `headers` replace those that carry the key. Raises OSError, TimeoutError, aiohttp.ClientError or ValueError when the
    server cannot be asked or does not know the question.
    """
    verify = await asyncio.to_thread(make_trust, settings.ca_file)
    url = f"{settings.base_url.rstrip('/')}/models"
    key = settings.api_key.reveal() if settings.api_key else "none"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=verify)) as session,
        session.get(
            url,
            headers=headers or {"Authorization": f"Bearer {key}"},
            proxy=choose_proxy(url, settings.proxy),
        ) as answer,
    ):
        answer.raise_for_status()
        try:
            return [str(item["id"]) for item in orjson.loads(await answer.read())["data"]]
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError("the answer is not a list of models; is it an OpenAI-compatible server?") from error


async def name_models(models: Sequence[ModelSettings]) -> tuple[ModelSettings, ...]:
    """Return `models`, those without the provider's name with the first model that their server offers.

    A URL without a path gets `/v1` if the server answers only there. A model whose server cannot be asked stays as it
    is: the first turn reports the error.
    """
    return tuple([await _name_model(settings) for settings in models])


async def _name_model(settings: ModelSettings) -> ModelSettings:
    if settings.model or not settings.base_url or settings.use != OPENAI:
        return settings
    try:
        ids = await offered_models(settings)
    except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
        if urlsplit(settings.base_url).path in ("", "/"):
            found = await _name_model(replace(settings, base_url=f"{settings.base_url.rstrip('/')}/v1"))
            if found.model:
                log.warning("model.base_url name=%s answers_at=%s", settings.name, found.base_url)
                return found
        log.warning("model.unnamed name=%s reason=%s", settings.name, _describe_refusal(error))
        return settings
    if not ids:
        log.warning("model.unnamed name=%s — the server offers no model", settings.name)
        return settings
    return replace(settings, model=ids[0], display_name=settings.display_name or ids[0])


def _describe_refusal(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the server answered with status {error.status}"
    return str(error) or type(error).__name__
