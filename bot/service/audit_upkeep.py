"""Keep the audit: note the configuration in force, delete old rows, and log the head of the chain every hour."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from dataclasses import replace
from functools import partial

from bot.base.version import VERSION
from bot.config.audit import AuditConfig
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent
from bot.database.audit_check import PruningRules
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.storage.jobs import BackgroundJob

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
