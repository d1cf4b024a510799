"""Price a model call in micro-dollars, by the operator's own prices or else by those of genai-prices."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from decimal import ROUND_HALF_UP, Decimal
from urllib.parse import urlsplit

from agent.context import ModelCall
from agent.models.settings import DEMO_CLASS_PATH, ModelSettings

OWN_PRICE, NO_PRICE, FREE = "config", "", "free"
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


def price_call(settings: ModelSettings | None, call: ModelCall) -> tuple[int | None, str]:
    """Return the cost of one call (None: unknown) and where its price comes from.

    Prices have tiers by the input of one request, so a sum of calls must not be priced. The table of genai-prices is
    imported here unless `load_prices` has done so.
    """
    if settings is None:
        return None, NO_PRICE
    if settings.use == DEMO_CLASS_PATH:
        return 0, FREE
    if own := settings.price:
        cached = own.input if own.cached is None else own.cached
        dollars_per_million = (call.input - call.cached) * own.input + call.cached * cached + call.output * own.output
        return round(dollars_per_million), OWN_PRICE
    if not _may_be_listed(settings):
        return None, NO_PRICE
    import genai_prices

    usage = genai_prices.Usage(
        input_tokens=call.input, output_tokens=call.output, cache_read_tokens=min(call.cached, call.input)
    )
    try:
        if settings.base_url:
            found = genai_prices.calc_price(usage, settings.model, provider_api_url=settings.base_url)
        else:
            found = genai_prices.calc_price(usage, settings.model, provider_id=PROVIDERS[_package(settings)])
    except LookupError:
        return None, NO_PRICE
    micro_dollars = Decimal(found.total_price) * 1_000_000
    return int(micro_dollars.to_integral_value(ROUND_HALF_UP)), f"genai-prices {genai_prices.__version__}"


async def load_prices(settings: ModelSettings | None) -> None:
    """Import the table of prices in a thread, if a call of this model needs it: it takes 0.2 s and 28 MB."""
    if settings and not settings.price and _may_be_listed(settings) and "genai_prices" not in sys.modules:
        await asyncio.to_thread(__import__, "genai_prices")


def _package(settings: ModelSettings) -> str:
    return settings.use.partition(":")[0].partition(".")[0]


def _may_be_listed(settings: ModelSettings) -> bool:
    """Return whether a public table can know this model: not one of a private server, nor of an unknown class."""
    if not settings.base_url:
        return _package(settings) in PROVIDERS
    host = urlsplit(settings.base_url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." in host
    return False
