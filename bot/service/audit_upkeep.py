"""Keep the audit: note the configuration in force, delete old rows, and log the head of the chain every hour.

Record in the audit where commands in sandboxes connected to, and where they were refused to.

Requests of a few seconds to one destination are one row. A name that was refused is a digest: whoever wrote it may have
put words into it that the audit must not hold; a name that was reached went out anyway.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from agent.messages import Thread
from bot.base.background import run_forever
from bot.base.version import VERSION
from bot.config.operations import AuditConfig
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.audit_check import PruningRules
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.storage import conversations
from bot.storage.jobs import BackgroundJob
from sandbox.rules import EgressRequest

log = logging.getLogger(__name__)

AUDIT_JOB = "audit"
AUDIT_SECONDS = 3600.0  # between two rounds
BATCH_ROWS = 2000  # deleted in one transaction, which takes about 20 ms


def record_config(execute: Execute, config: Config, event: AuditEvent) -> None:
    """Record `event` with digests of the rules in force: two rows that differ enclose the moment of a change."""
    access = {entry.name: entry.access for entry in config.channels}
    what = {
        **event.what,
        "version": VERSION,
        "file": config.digest,
        "permissions": audit.digest(repr(config.permissions)),
        "access": audit.digest(repr(access)),
        "team": audit.digest(repr(config.team)),
        "network": audit.digest(repr(config.sandbox.network)),
    }
    audit.record(execute, replace(event, what=what))


async def keep_audit(store: Database, current: Current, job: BackgroundJob) -> None:
    """Handle the recurring job: log the head, to be compared later, and delete rows that are too old."""
    settings = current.config.audit
    seq, head = await store.run(audit.read_head)
    anchor = f"{seq}:{head.hex()}"
    log.info("audit.head anchor=%s", sign_anchor(anchor, settings))
    rows = 0
    if settings.days:
        prune = partial(
            audit.prune_rows, days=settings.days, limit=BATCH_ROWS, sign=partial(sign_text, settings=settings)
        )
        while deleted := await store.run(prune):
            rows += deleted
            await asyncio.sleep(0.05)  # others write in between
    if rows:
        log.info("audit.pruned rows=%d", rows)


def pruning_rules(settings: AuditConfig) -> PruningRules:
    """Return what retention may have deleted."""
    return PruningRules(settings.days, partial(sign_text, settings=settings))


def sign_anchor(anchor: str, settings: AuditConfig) -> str:
    """Return an anchor, SEQ:HASH, with its HMAC-SHA256 if a key is configured."""
    return f"{anchor}:{sign_text(anchor, settings)}" if settings.key else anchor


def sign_text(text: str, settings: AuditConfig) -> str:
    """Return the HMAC-SHA256 of a text; "" without a key."""
    return hmac.new(settings.key.reveal().encode(), text.encode(), hashlib.sha256).hexdigest() if settings.key else ""


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
