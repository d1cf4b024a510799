"""Search the web."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from langchain_core.tools import ToolException

from agent.blocks import Notice
from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Runtime, ToolTraits, describe_as, make_tool
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from agent.web.addresses import WebError
from agent.web.quoting import quote_untrusted
from agent.web.search import MAX_SNIPPET_CHARS
from catalogue import N_

MAX_RESULTS = 20


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where a search provider is configured."""
    if (search := services.search) is None:
        return None

    @make_tool(
        ToolTraits(
            describe=describe_as(N_("Searching the web for {query}")),
            effect="none",
            read_only=True,
            permission="allow",
            subject=Subject("query"),
            way_out="query",
            brings="pages",
        )
    )
    async def web_search(
        query: Annotated[str, "A few words, as for any search engine."],
        runtime: Runtime,
        count: Annotated[int, "How many results, at most 20."] = 8,
    ) -> str:
        """Search the web. Returns titles, URLs and short excerpts: read a page with web_fetch before you rely on it."""
        notify = partial(_notify, runtime)
        try:
            provider, hits = await search.find(query, min(max(count, 1), MAX_RESULTS), notify)
        except WebError as error:
            raise ToolException(str(error)) from error
        for hit in hits:  # not the query, which the model wrote
            await runtime.context.exposure.note_page(hit.url, hit.snippet[:MAX_SNIPPET_CHARS])
        lines = [f"{n}. {hit.title}\n{hit.url}\n{hit.snippet[:MAX_SNIPPET_CHARS]}" for n, hit in enumerate(hits, 1)]
        return quote_untrusted("search_results", "\n\n".join(lines) or "No results.", query=query, by=provider)

    return web_search


def _notify(runtime: Runtime, text: str) -> None:
    runtime.stream_writer(Notice("search", text))
