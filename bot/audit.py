"""Keep the audit: note the configuration in force, delete old rows, and log the head of the chain every hour."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from dataclasses import replace

from bot.config.schema import AuditConfig, Config
from bot.current import Current
from bot.storage import audit
from bot.storage.audit import AuditEvent
from bot.storage.database import Database, Execute
from bot.storage.jobs import BackgroundJob
from bot.version import VERSION

log = logging.getLogger(__name__)

AUDIT_JOB = "audit"
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
        before = time.time() - settings.days * 86400
        while deleted := await store.run(lambda execute: audit.prune_rows(execute, before, BATCH_ROWS)):
            rows += deleted
            await asyncio.sleep(0.05)  # others write in between
    if rows:
        log.info("audit.pruned rows=%d", rows)


def sign_anchor(anchor: str, settings: AuditConfig) -> str:
    """Return an anchor, SEQ:HASH, with its HMAC-SHA256 if a key is configured."""
    if not settings.key:
        return anchor
    return f"{anchor}:{hmac.new(settings.key.reveal().encode(), anchor.encode(), hashlib.sha256).hexdigest()}"
