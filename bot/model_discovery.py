"""Ask an OpenAI-compatible server which models it offers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import replace

import aiohttp
import orjson

from agent.models.settings import ModelSettings
from bot.config.loader import OPENAI

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5.0  # seconds: a start waits for it


async def offered_models(settings: ModelSettings) -> list[str]:
    """The ids of `GET {base_url}/models`, in the server's order. Raises OSError, TimeoutError, aiohttp.ClientError or
    ValueError when the server cannot be asked or does not know the question."""
    verify = await asyncio.to_thread(ssl.create_default_context, cafile=settings.ca_file or None)
    key = settings.api_key.reveal() if settings.api_key else "none"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=verify)) as session,
        session.get(
            f"{settings.base_url.rstrip('/')}/models",
            headers={"Authorization": f"Bearer {key}"},
            proxy=settings.proxy or None,
        ) as answer,
    ):
        answer.raise_for_status()
        try:
            return [str(item["id"]) for item in orjson.loads(await answer.read())["data"]]
        except (KeyError, TypeError) as error:
            raise ValueError("the answer is no list of models") from error


async def name_models(models: Sequence[ModelSettings]) -> tuple[ModelSettings, ...]:
    """`models`, those without a name of the provider's with the first that their server offers. One that cannot be
    asked stays as it is: the first turn will say what is wrong."""
    return tuple([await _name_model(settings) for settings in models])


async def _name_model(settings: ModelSettings) -> ModelSettings:
    if settings.model or not settings.base_url or settings.use != OPENAI:
        return settings
    try:
        ids = await offered_models(settings)
    except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
        log.warning("model.unnamed name=%s reason=%s", settings.name, error or type(error).__name__)
        return settings
    if not ids:
        log.warning("model.unnamed name=%s reason=the server offers no model", settings.name)
        return settings
    return replace(settings, model=ids[0], display_name=settings.display_name or ids[0])
