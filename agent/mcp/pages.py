"""Read the lists of MCP servers, which answer in pages (modelcontextprotocol.io, server/utilities/pagination)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

MAX_PAGES = 20  # of one list


async def read_pages(ask: Callable[[str | None], Awaitable[Any]], field: str, most: int | None = None) -> list[Any]:
    """Return what the pages of a list have in a field, up to the page with which there are `most`. `ask` returns the
    page of a cursor."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if not cursor or (most is not None and len(found) >= most):
            break
    return found
