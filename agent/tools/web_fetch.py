"""Read a page of the web."""

from __future__ import annotations

from typing import Annotated

from langchain_core.tools import ToolException

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Runtime, ToolTraits, describe_as, make_tool
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from agent.web.addresses import WebError
from agent.web.quoting import quote_untrusted
from catalogue import N_


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where the agent may read pages."""
    if (fetcher := services.fetcher) is None:
        return None

    @make_tool(
        ToolTraits(
            describe=describe_as(N_("Reading {url}")),
            effect="none",
            read_only=True,
            permission="allow",
            subject=Subject("url"),
            way_out="address",
            brings="pages",
        )
    )
    async def web_fetch(url: Annotated[str, "A public http or https URL."], runtime: Runtime) -> str:
        """Read a public web page or PDF: its main content as Markdown, with title, date and links. When your answer
        uses a page, cite it in that sentence as a Markdown link to its URL."""
        try:
            page = await fetcher.fetch(url.strip(), owner=runtime.context.meter.root)
        except WebError as error:
            raise ToolException(str(error)) from error
        await runtime.context.exposure.note_page(page.url, page.text)
        text = page.text or "[the page has no text; it may need JavaScript]"
        return quote_untrusted("web_page", text, url=page.url, title=page.title, date=page.date)

    return web_fetch
