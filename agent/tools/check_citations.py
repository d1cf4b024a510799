"""Find citations in a report that their pages do not support."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Runtime, ToolTraits, absolute_path, describe_as, make_tool
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings
from agent.web.addresses import WebError
from agent.web.citations import find_citations, find_unsupported
from agent.web.fetcher import WebPage
from agent.web.quoting import quote_untrusted
from catalogue import N_
from sandbox.base import ROOT

MAX_REPORT_BYTES = 1 << 20
MAX_PAGES = 40
NOT_NAMED = "was not read: it stood in no message, result or page. Read it with web_fetch first."


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where the agent may read pages."""
    if (fetcher := services.fetcher) is None:
        return None

    @make_tool(
        ToolTraits(
            describe=describe_as(N_("Checking the citations")),
            effect="none",
            read_only=True,
            permission="allow",
            subject=Subject("report", "path"),
            brings="pages",
        )
    )
    async def check_citations(
        report: Annotated[str, "The report in Markdown: its text, or the absolute path of its file."],
        runtime: Runtime,
    ) -> str:
        """Compare each cited sentence of a report with the page it links to. Use it before you deliver a report with
        sources, and correct what it lists."""
        if report.startswith(f"{ROOT}/"):
            sandbox = await runtime.context.sandbox.get()
            data = await sandbox.read(absolute_path(report), limit=MAX_REPORT_BYTES)
            report = data.decode("utf-8", "replace")
        claims = await asyncio.to_thread(_claims_by_url, report)
        problems = []
        for url in list(claims)[:MAX_PAGES]:
            if runtime.context.exposure.destination("address", "web_fetch", {"url": url}):
                problems.append(f"- {url} {NOT_NAMED}")
                continue
            try:
                page = await fetcher.fetch(url, owner=runtime.context.meter.root)
            except WebError as error:
                problems.append(f"- {url} cannot be read: {error}")
                continue
            problems += await asyncio.to_thread(_compare, claims[url], url, page)
        summary = f"{sum(map(len, claims.values()))} citations of {len(claims)} pages"
        if len(claims) > MAX_PAGES:
            problems.append(f"- only the first {MAX_PAGES} pages were checked")
        if not claims:
            return "The report cites no page: link the URL in the sentence that needs a source."
        if not problems:
            return f"{summary}: each page contains the numbers and most words of the sentences that cite it."
        return quote_untrusted("citations", f"{summary}. Check these:\n" + "\n".join(problems))

    return check_citations


def _claims_by_url(report: str) -> dict[str, list[str]]:
    claims = defaultdict[str, list[str]](list)
    for citation in find_citations(report):
        claims[citation.url].append(citation.claim)
    return claims


def _compare(claims: Sequence[str], url: str, page: WebPage) -> list[str]:
    """Return a line for each claim that the page does not support."""
    text = f"{page.title} {page.date} {page.text}"
    found = ((claim, find_unsupported(claim, text)) for claim in claims)
    return [f"- “{claim[:300]}” → {url}: the page does not contain {missing}" for claim, missing in found if missing]
