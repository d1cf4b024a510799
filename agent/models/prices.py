"""Price a paid call in micro-dollars, by the operator's own prices or else by those of genai-prices."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeAlias
from urllib.parse import urlsplit

from agent.settings.models import DEMO_CLASS_PATH, ModelSettings
from agent.settings.sections import EmbeddingsConfig, VoiceConfig
from agent.spending import ModelCall

OWN_PRICE, NO_PRICE, FREE, REPORTED_PRICE = "config", "", "free", "agent"
NO_CALL = ModelCall("", "", "", input=0, output=0, cached=0, reasoning=0, seconds=0.0, at=0.0)
# The provider of a class that has one: another server's model of the same name may cost something else.
PROVIDERS = {
    "langchain_anthropic": "anthropic",
    "langchain_deepseek": "deepseek",
    "langchain_google_genai": "google",
    "langchain_mistralai": "mistral",
    "langchain_openai": "openai",
    "langchain_openrouter": "openrouter",
    "langchain_xai": "x-ai",
}


Priced: TypeAlias = ModelSettings | VoiceConfig | EmbeddingsConfig
"""The settings of what is paid for."""


def price_call(settings: Priced | None, call: ModelCall) -> tuple[int | None, str]:
    """Return the cost of one call (None: unknown) and where its price comes from.

    Prices have tiers by the input of one request, so a sum of calls must not be priced. The table of genai-prices is
    imported here unless `load_prices` has done so.
    """
    if settings is None:
        return None, NO_PRICE
    if isinstance(settings, ModelSettings) and settings.use == DEMO_CLASS_PATH:
        return 0, FREE
    if (own := _own_price(settings, call)) is not None:
        return _micro_dollars(Decimal(own)), OWN_PRICE
    if not _may_be_listed(settings):
        return None, NO_PRICE
    import genai_prices

    usage = genai_prices.Usage(
        input_tokens=call.input, output_tokens=call.output, cache_read_tokens=min(call.cached, call.input)
    )
    if call.audio_seconds:  # a model is listed either by tokens or by seconds
        usage = genai_prices.Usage(
            input_tokens=call.input,
            input_audio_tokens=call.input,
            output_tokens=call.output,
            audio_seconds=call.audio_seconds,
        )
    try:
        if settings.base_url:
            found = genai_prices.calc_price(usage, settings.model, provider_api_url=settings.base_url)
        else:
            found = genai_prices.calc_price(usage, settings.model, provider_id=PROVIDERS[_package(settings)])
    except LookupError:
        return None, NO_PRICE
    return _micro_dollars(Decimal(found.total_price) * 1_000_000), f"genai-prices {genai_prices.__version__}"


def _own_price(settings: Priced, call: ModelCall) -> float | None:
    """Return the cost by the prices of the configuration, in micro-dollars; None where it has none."""
    if isinstance(settings, VoiceConfig):
        price = settings.price_per_minute
        return None if price is None else call.audio_seconds / 60 * price * 1_000_000
    if isinstance(settings, EmbeddingsConfig):
        price = settings.price_per_million_tokens
        return None if price is None else call.input * price
    if own := settings.price:
        cached = own.input if own.cached is None else own.cached
        return (call.input - call.cached) * own.input + call.cached * cached + call.output * own.output
    return None


def _micro_dollars(cost: Decimal) -> int:
    """Return a cost in whole micro-dollars, at least one: many calls that cost less are not free."""
    return max(int(cost.to_integral_value(ROUND_HALF_UP)), int(cost > 0))


async def load_prices(settings: Priced | None) -> None:
    """Import the table of prices in a thread, if a call of this model needs it: it takes 0.2 s and 28 MB."""
    if settings is None or "genai_prices" in sys.modules:
        return
    if _own_price(settings, NO_CALL) is None and _may_be_listed(settings):
        await asyncio.to_thread(__import__, "genai_prices")


def _package(settings: Priced) -> str:
    return settings.use.partition(":")[0].partition(".")[0] if isinstance(settings, ModelSettings) else ""


def _may_be_listed(settings: Priced) -> bool:
    """Return whether a public table can know this model: not one of a private server, nor of an unknown class."""
    if not settings.base_url:
        return _package(settings) in PROVIDERS
    host = urlsplit(settings.base_url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." in host
    return False
