"""Search providers behind one protocol, asked in the order of the configuration."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import orjson

from agent.late_imports import describe_install
from agent.settings.network import choose_proxy, describe_failure, make_trust, trusted_file
from agent.settings.sections import SearchSettings
from agent.web.addresses import WebError
from catalogue import N_, _

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 15.0
MAX_SNIPPET_CHARS = 600
COOLDOWN_SECONDS = 300.0  # a provider that failed is asked last for so long


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search."""

    url: str
    title: str
    snippet: str


class SearchProvider(Protocol):
    """A search engine. `label` is its name for people."""

    label: str

    async def find(self, query: str, count: int) -> Sequence[SearchHit]:
        """Return at most `count` results. Raises WebError."""


@dataclass(frozen=True, slots=True)
class _Api:
    """How a provider is asked over HTTP: its address, its request, and the results in its answer."""

    label: str
    url: str
    request: Callable[[str, int, str], dict[str, Any]]  # query, count and key → arguments of aiohttp
    results: Callable[[Any], Sequence[Mapping[str, Any]]]
    snippet: str = "content"


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# The paths of SearXNG and InfoQuest's nesting: docs.searxng.org/dev/search_api.html, docs.byteplus.com (InfoQuest).
APIS = {
    "searxng": _Api(
        "SearXNG",
        "",
        lambda query, count, key: {"params": {"q": query, "format": "json"}},
        lambda data: data["results"],
    ),
    "tavily": _Api(
        "Tavily",
        "https://api.tavily.com/search",
        lambda query, count, key: {"json": {"query": query, "max_results": count}, "headers": _bearer(key)},
        lambda data: data["results"],
    ),
    "brave": _Api(
        "Brave",
        "https://api.search.brave.com/res/v1/web/search",
        lambda query, count, key: {"params": {"q": query, "count": count}, "headers": {"X-Subscription-Token": key}},
        lambda data: data.get("web", {}).get("results", []),  # without results, the part is missing
        "description",
    ),
    "exa": _Api(
        "Exa",
        "https://api.exa.ai/search",
        lambda query, count, key: {
            "json": {"query": query, "numResults": count, "contents": {"text": {"maxCharacters": MAX_SNIPPET_CHARS}}},
            "headers": {"x-api-key": key},
        },
        lambda data: data["results"],
        "text",
    ),
    "infoquest": _Api(
        "InfoQuest",
        "https://search.infoquest.bytepluses.com",
        lambda query, count, key: {"json": {"query": query, "format": "JSON"}, "headers": _bearer(key)},
        lambda data: [
            hit for part in data["search_result"]["results"] for hit in part["content"]["results"].get("organic", [])
        ],
        "desc",
    ),
}

ENGINE = "https://duckduckgo.com"  # one of those that ddgs asks
PUBLIC_URLS = {name: api.url for name, api in APIS.items() if api.url}


class HttpSearch:
    """A provider with an HTTP API."""

    def __init__(self, settings: SearchSettings, proxy: str = "") -> None:
        self._proxy = proxy if settings.provider != "searxng" else ""  # an instance of one's own
        self._api = APIS[settings.provider]
        self._url = settings.url or self._api.url
        if settings.provider == "searxng":
            self._url = f"{self._url.rstrip('/').removesuffix('/search')}/search"
        self._key = settings.api_key.reveal() if settings.api_key else ""
        self.label = self._api.label

    async def find(self, query: str, count: int) -> Sequence[SearchHit]:
        request = self._api.request(query, count, self._key)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
                session.request(
                    "POST" if "json" in request else "GET",
                    self._url,
                    proxy=choose_proxy(self._url, self._proxy),
                    ssl=make_trust(),
                    **request,
                ) as response,
            ):
                if response.status >= 400:
                    raise WebError(_status_reason(self._api.label, response.status), status=response.status)
                data = orjson.loads(await response.read())
            return [self._hit(raw) for raw in self._api.results(data)[:count]]
        except TimeoutError:
            raise WebError(N_("no answer within {n:.0f} s"), n=TIMEOUT_SECONDS) from None
        except (aiohttp.ClientError, OSError) as error:
            raise WebError(N_("the connection failed ({error})"), error=describe_failure(error)) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise WebError(N_("its answer has an unknown form")) from error

    def _hit(self, raw: Mapping[str, Any]) -> SearchHit:
        return SearchHit(str(raw["url"]), str(raw.get("title") or ""), str(raw.get(self._api.snippet) or ""))


def _status_reason(label: str, status: int) -> str:
    if status in (401, 403) and label == "SearXNG":
        return N_("it refuses JSON: an operator must add `json` to `search.formats` in its settings.yml")
    reasons = {
        401: N_("its key is wrong"),
        403: N_("its key is wrong"),
        402: N_("its quota is used up"),
        429: N_("its limit is reached"),
    }
    return reasons.get(status, N_("it answers with status {status}"))


class ScrapedSearch:
    """Public search engines through the package ddgs, without a key: they may refuse at any time."""

    label = "ddgs"

    def __init__(self, proxy: str = "") -> None:
        self._proxy = proxy

    async def find(self, query: str, count: int) -> Sequence[SearchHit]:
        try:
            return await asyncio.to_thread(self._scrape, query, count)
        except ImportError as error:
            fix = describe_install("ddgs")
            raise WebError(N_("the package ddgs is not installed: {fix}"), fix=fix) from error

    def _scrape(self, query: str, count: int) -> Sequence[SearchHit]:
        ddgs = importlib.import_module("ddgs")
        try:
            proxy = choose_proxy(ENGINE, self._proxy)
            engines = ddgs.DDGS(proxy=proxy, timeout=10, verify=trusted_file() or True)
            found = engines.text(query, max_results=count)
        except ddgs.exceptions.DDGSException as error:  # it does not tell a refusal from an empty result
            raise WebError(N_("no results, or the search engines refuse automatic queries")) from error
        return [SearchHit(hit["href"], hit["title"], hit["body"]) for hit in found]


class WebSearch:
    """Asks the providers in order until one answers."""

    def __init__(self, providers: Sequence[SearchProvider]) -> None:
        self._providers = providers
        self._failed_at: dict[str, float] = {}

    async def find(self, query: str, count: int, notify: Callable[[str], None]) -> tuple[str, Sequence[SearchHit]]:
        """Return who answered, and the results. `notify` tells the person about a failover. Raises WebError."""
        order = sorted(self._providers, key=self._recently_failed)
        reasons = []
        for provider, following in zip(order, [*order[1:], None], strict=True):
            try:
                return provider.label, await provider.find(query, count)
            except WebError as error:
                self._failed_at[provider.label] = time.monotonic()
                log.warning("search.failed provider=%s reason=%s", provider.label, error)
                reasons.append(f"{provider.label}: {error}")
                if following:
                    notify(
                        _(
                            "{name} can't search at the moment. {other} searches instead.",
                            name=provider.label,
                            other=following.label,
                        )
                    )
        raise WebError(f"The search failed. {'; '.join(reasons)}.")

    def _recently_failed(self, provider: SearchProvider) -> bool:
        return time.monotonic() - self._failed_at.get(provider.label, -COOLDOWN_SECONDS) < COOLDOWN_SECONDS


def make_search(entries: Sequence[SearchSettings], proxy: str = "") -> WebSearch | None:
    """Return the search over the configured providers, or None without one."""
    return WebSearch([make_provider(entry, proxy) for entry in entries]) if entries else None


def make_provider(entry: SearchSettings, proxy: str = "") -> SearchProvider:
    """Return one configured provider."""
    return ScrapedSearch(proxy) if entry.provider == "ddgs" else HttpSearch(entry, proxy)
