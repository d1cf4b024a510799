"""Each search provider is asked in its own form, and another one answers when it fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from aiohttp import web
from langchain_core.tools import ToolException

from agent.blocks import Notice
from agent.core.context import ToolServices
from agent.exposure import Exposure
from agent.setting import Secret
from agent.settings.sections import AgentSettings, SearchSettings
from agent.tools.web_search import make
from agent.web.addresses import WebError
from agent.web.search import HttpSearch, ScrapedSearch, SearchHit, SearchProvider, WebSearch, make_search
from tests.support.web_server import ClonedResponse, WebSite, serve_site

Provider = Literal["searxng", "tavily", "brave", "exa", "infoquest"]
HIT = {"title": "Otters", "url": "https://example.com/otters"}
ANSWERS: dict[Provider, Any] = {  # as each provider's documentation shows them, cut to what is read
    "searxng": {"query": "otters", "results": [{**HIT, "content": "412 animals", "engine": "x"}], "answers": []},
    "tavily": {"results": [{**HIT, "content": "412 animals", "score": 0.9, "raw_content": None}]},
    "brave": {"type": "search", "web": {"results": [{**HIT, "description": "412 animals"}]}},
    "exa": {"results": [{**HIT, "id": "x", "text": "412 animals", "publishedDate": None}]},
    "infoquest": {
        "search_result": {"results": [{"content": {"results": {"organic": [{**HIT, "desc": "412 animals"}]}}}]}
    },
}


@pytest.fixture
async def site() -> AsyncIterator[WebSite]:
    async with serve_site() as served:
        yield served


def entry(site: WebSite, provider: Provider, path: str = "") -> SearchSettings:
    return SearchSettings(provider, Secret("key-1"), f"http://127.0.0.1:{site.port}{path or '/' + provider}")


@pytest.mark.parametrize("provider", ANSWERS)
async def test_a_provider_is_asked_in_its_form(site: WebSite, provider: Provider) -> None:
    path = "/searxng/search" if provider == "searxng" else f"/{provider}"
    site.pages[path] = ClonedResponse(text=json.dumps(ANSWERS[provider]), content_type="application/json")
    hits = await HttpSearch(entry(site, provider)).find("otters", 5)
    assert [*hits] == [SearchHit("https://example.com/otters", "Otters", "412 animals")]
    asked, headers = (site.bodies or [site.requests[0][1]])[0], site.headers
    assert "otters" in str(asked)
    sent = {
        "tavily": "Authorization",
        "infoquest": "Authorization",
        "brave": "X-Subscription-Token",
        "exa": "x-api-key",
    }
    assert provider == "searxng" or headers[sent[provider]].removeprefix("Bearer ") == "key-1"


async def test_another_provider_answers_when_one_fails_and_stays_in_front(site: WebSite) -> None:
    site.pages |= {
        "/tavily": ClonedResponse(status=429),
        "/brave": ClonedResponse(text=json.dumps(ANSWERS["brave"]), content_type="application/json"),
    }
    search = make_search([entry(site, "tavily"), entry(site, "brave")])
    tool = make(AgentSettings(), ToolServices(False, search=search))
    assert tool is not None
    written: list[Any] = []
    exposure = Exposure()
    runtime = SimpleNamespace(stream_writer=written.append, context=SimpleNamespace(exposure=exposure))
    for _ in range(2):
        answer = await tool.coroutine(query="otters", runtime=runtime)  # type: ignore[misc]  # make_tool sets it
        assert answer.startswith('<search_results query="otters" by="Brave">')
        assert exposure.untrusted
        assert "1. Otters\nhttps://example.com/otters\n412 animals" in answer
    assert written == [Notice("search", "Tavily can't search at the moment. Brave searches instead.")]
    assert [path for _, path in site.requests] == ["/tavily", "/brave?q=otters&count=8", "/brave?q=otters&count=8"]


async def test_the_model_learns_why_every_provider_failed(site: WebSite) -> None:
    async def nonsense(request: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    site.pages |= {"/s/search": ClonedResponse(status=403), "/exa": nonsense}
    providers: list[SearchProvider] = [
        HttpSearch(entry(site, "searxng", "/s")),
        HttpSearch(entry(site, "exa")),
        ScrapedSearch("http://127.0.0.1:1"),
    ]
    tool = make(AgentSettings(), ToolServices(False, search=WebSearch(providers)))
    assert tool is not None
    runtime = SimpleNamespace(stream_writer=[].append)
    with pytest.raises(ToolException) as caught:
        await tool.coroutine(query="otters", runtime=runtime)  # type: ignore[misc]  # make_tool sets it
    assert "SearXNG: it refuses JSON" in str(caught.value)
    assert "Exa: its answer has an unknown form" in str(caught.value)
    assert "ddgs: no results, or the search engines refuse automatic queries" in str(caught.value)


async def test_a_provider_that_is_not_there_is_a_failure(site: WebSite) -> None:
    with pytest.raises(WebError, match="connection failed"):
        await HttpSearch(SearchSettings("tavily", None, "http://127.0.0.1:1")).find("otters", 5)


def test_without_a_provider_there_is_no_tool() -> None:
    assert make_search(()) is None
    assert make(AgentSettings(), ToolServices(False)) is None
