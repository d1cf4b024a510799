"""Record in the audit where commands in sandboxes connected to, and where they were refused to.

Requests of a few seconds to one destination are one row. A name that was refused is a digest: whoever wrote it may have
put words into it that the audit must not hold; a name that was reached went out anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from agent.messages import Thread
from bot.base.background import run_forever
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.storage import conversations
from sandbox.requests import EgressRequest

EVERY_SECONDS = 3.0
MAX_DESTINATIONS = 500  # in that time; what is more counts as one
OTHERS = EgressRequest("other", "", 0)
Key = tuple[str, str, str, int]  # conversation, outcome, host, port


class EgressRecords:
    """Counts requests, and writes them from time to time."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._counts: dict[Key, tuple[int, int, int]] = {}  # requests, bytes sent, bytes received

    def note(self, conversation: str, request: EgressRequest) -> None:
        """Count a request of a conversation's sandbox."""
        key: Key = (conversation, request.outcome, request.host, request.port)
        if key not in self._counts and len(self._counts) >= MAX_DESTINATIONS:
            key = (conversation, OTHERS.outcome, OTHERS.host, OTHERS.port)
        requests, sent, received = self._counts.get(key, (0, 0, 0))
        self._counts[key] = (requests + 1, sent + request.sent, received + request.received)

    async def serve(self) -> None:
        """Write until cancelled; then write what is left."""
        try:
            await run_forever("egress records", self._wait_and_write)
        finally:
            await asyncio.shield(self._write())

    async def _wait_and_write(self) -> None:
        await asyncio.sleep(EVERY_SECONDS)
        await self._write()

    async def _write(self) -> None:
        counts, self._counts = self._counts, {}
        if counts:
            await self._store.run(partial(_record, counts=counts))


def _record(execute: Execute, counts: Mapping[Key, tuple[int, int, int]]) -> None:
    for (conversation, outcome, host, port), (requests, sent, received) in counts.items():
        found = conversations.find_conversation(execute, conversation)
        shown = host if outcome == "done" else audit.digest(host)
        what: dict[str, int | str] = {
            "host": shown,
            "port": port,
            "requests": requests,
            "sent": sent,
            "received": received,
        }
        thread = Thread.parse(found.thread) if found else None
        audit.record(execute, AuditEvent(AuditKind.EGRESS, thread, what=what, result=outcome))
