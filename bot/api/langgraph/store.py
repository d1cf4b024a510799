"""Serve memory as the store of LangGraph's clients: items of the namespace `memory`, whose key is a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.memory.visibility import Memory
from agent.messages import Thread
from bot.api.langgraph.endpoints import BAD_BODY, MOST, PAGE, caller_of, count_of, read_object
from bot.api.langgraph.shapes import iso
from bot.api.own.memories import find_memory, memories_of
from bot.api.shared.caller import Caller
from bot.api.shared.event_json import Json
from bot.api.shared.posting import run_command
from bot.api.shared.read_models import not_found
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.http.route import HttpProblem, Route, json_response
from bot.storage.api_access import READ, THREADS

if TYPE_CHECKING:
    from aiohttp import web

NAMESPACE = ["memory"]
NO_PUT = HttpProblem(
    *(422, "no_put", "Memories are not written from outside."),
    "Say it to the agent in a thread: it keeps what lasts, with the words that say it.",
)


@dataclass(frozen=True, slots=True)
class StoreEndpoints:
    """The routes."""

    door: Door

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("GET", "/store/items", self._item),
            Route("PUT", "/store/items", self._put),
            Route("DELETE", "/store/items", self._delete),
            Route("POST", "/store/items/search", self._search),
            Route("POST", "/store/namespaces", self._namespaces),
        ]

    async def _item(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request, READ)
        named, key = request.query.get("namespace", "").split("."), request.query.get("key", "")
        return json_response(200, _item(await self._find(caller, named, key)))

    async def _find(self, caller: Caller, namespace: object, key: object) -> Memory:
        """Return a memory of the caller. Raises HttpProblem."""
        number = parse_row_id(key) if isinstance(key, str) and key.isascii() and namespace == NAMESPACE else None
        found = (
            await self.door.store.run(partial(find_memory, caller=caller, number=number), durable=False)
            if number
            else None
        )
        if found is None:
            raise not_found("item")
        return found

    async def _put(self, request: web.Request) -> web.Response:
        await caller_of(self.door, request, THREADS)
        raise NO_PUT

    async def _delete(self, request: web.Request) -> web.Response:
        """Forget a memory as the command `/memory forget` does."""
        from aiohttp import web

        caller, body = await caller_of(self.door, request, THREADS), await read_object(request)
        row = await self._find(caller, body.get("namespace"), body.get("key"))
        await run_command(self.door, caller, Thread.parse(row.thread).channel, f"memory forget {row.id}")
        return web.Response(status=204)

    async def _search(self, request: web.Request) -> web.Response:
        caller, body = await caller_of(self.door, request, READ), await read_object(request)
        prefix, query = body.get("namespace_prefix") or [], body.get("query") or ""
        limit, offset = count_of(body, "limit", PAGE), count_of(body, "offset", 0)
        if not isinstance(prefix, list) or not isinstance(query, str):
            raise BAD_BODY
        words = query.casefold().split()

        def search(execute: Execute) -> list[Json]:
            rows = memories_of(execute, caller) if prefix in ([], NAMESPACE) else []
            found = [row for row in rows if all(word in row.line.casefold() for word in words)]
            return [_item(row) for row in found[offset : offset + min(limit, MOST)]]

        return json_response(200, {"items": await self.door.store.run(search, durable=False)})

    async def _namespaces(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request, READ)
        rows = await self.door.store.run(partial(memories_of, caller=caller), durable=False)
        return json_response(200, {"namespaces": [NAMESPACE] if rows else []})


def _item(row: Memory) -> Json:
    value: dict[str, Any] = {"kind": str(row.kind), "subject": row.subject, "text": row.text, "thread": row.thread}
    return {
        "namespace": NAMESPACE,
        "key": f"{row.id}",
        "value": value,
        "created_at": iso(row.said),
        "updated_at": iso(row.said),
    }
