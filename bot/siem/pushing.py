"""Push the audit: every row in order, each at least once, and the head of the chain whenever all of it is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from bot.base.background import run_forever
from bot.config.audit import AuditPushConfig
from bot.database import audit
from bot.database.audit import NAMED_FIELDS
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.service.audit_upkeep import sign_anchor
from bot.siem.ecs import as_line, describe_anchor, describe_damage, describe_row, parse_row
from bot.siem.receivers import SEND_SECONDS, NotTaken, Receiver, connected
from bot.storage.audit_push import move_cursor, read_cursor

log = logging.getLogger(__name__)

BATCH_ROWS = 200
LOOK_SECONDS = 1.0  # between two looks for new rows
SENT_AGAIN = 200  # rows before the cursor that go out again on a new connection: the old one may have lost them
RETRY_SECONDS = 15.0


class AuditPush:
    """The loop that pushes."""

    def __init__(
        self,
        store: Database,
        current: Current,
        send_seconds: float = SEND_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._store = store
        self._current = current
        self._send_seconds, self._retry_seconds = send_seconds, retry_seconds
        self._rows = BATCH_ROWS  # that go out at once: fewer where the receiver is slow

    async def serve(self) -> None:
        """Push until cancelled, with the receiver of the configuration in force."""
        await run_forever("audit push", self._step)

    async def _step(self) -> None:
        config = self._current.config.audit.push
        if not config.target:
            await asyncio.sleep(LOOK_SECONDS)
            return
        try:
            async with connected(config, self._send_seconds) as receiver:
                log.info("audit.push_connected")
                await self._push(config, receiver)
        except (NotTaken, OSError) as error:  # a TimeoutError is an OSError
            if isinstance(error, TimeoutError):
                self._rows = max(1, self._rows // 4)  # else a slow receiver would get the same rows again and again
            log.warning("audit.push_later reason=%s", str(error) or type(error).__name__)
            await asyncio.sleep(self._retry_seconds)

    async def _push(self, config: AuditPushConfig, receiver: Receiver) -> None:
        """Push over one connection, as long as the configuration names this receiver. Raises as `Receiver.send`."""
        cursor = await self._store.run(partial(read_cursor, target=config.target))
        if config.syslog:  # it does not say what it has stored
            cursor = max(0, cursor - SENT_AGAIN)
        anchored = -1
        while self._current.config.audit.push == config:
            events = await self._store.run(partial(_parse_rows, after=cursor, limit=self._rows))
            if events:
                await receiver.send([(str(each["@timestamp"]), as_line(each)) for each in events])
                self._rows = min(2 * self._rows, BATCH_ROWS)
                cursor = events[-1]["event.sequence"]
                await self._store.run(partial(move_cursor, target=config.target, seq=cursor))
            elif anchored != cursor:
                await self._send_anchor(receiver, cursor)
                anchored = cursor
            else:
                await asyncio.sleep(LOOK_SECONDS)

    async def _send_anchor(self, receiver: Receiver, seq: int) -> None:
        rows = await self._store.run(partial(audit.read_page, after=seq - 1, limit=1))
        if rows and rows[0].seq == seq:
            anchor = sign_anchor(f"{seq}:{rows[0].hash.hex()}", self._current.config.audit)
            event = describe_anchor(seq, anchor)
            await receiver.send([(str(event["@timestamp"]), as_line(event))])


def _parse_rows(execute: Execute, after: int, limit: int) -> Sequence[dict[str, Any]]:
    """Return the next rows by the names of the schema, with who their pseudonyms are."""
    rows = [(row, parse_row(row)) for row in audit.read_page(execute, after, limit)]
    aliases = {str(event[name]) for _row, event in rows if event for name in NAMED_FIELDS if name in event}
    names = audit.find_names(execute, aliases) if aliases else {}
    return [describe_row(row, event, names) if event else describe_damage(row) for row, event in rows]
