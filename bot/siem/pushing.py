"""Push the audit: every row in order, each at least once, and the head of the chain whenever all of it is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from bot.config.audit import AuditPushConfig
from bot.current import Current
from bot.service.audit_upkeep import sign_anchor
from bot.service.background import run_forever
from bot.siem.ecs import as_line, describe_anchor, describe_row
from bot.siem.receivers import NotTaken, Receiver, connected
from bot.storage import audit
from bot.storage.audit import NAMED_FIELDS, AuditRow
from bot.storage.audit_push import move_cursor, read_cursor
from bot.storage.database import Database, Execute

log = logging.getLogger(__name__)

BATCH_ROWS = 200
LOOK_SECONDS = 1.0  # between two looks for new rows
SENT_AGAIN = 200  # rows before the cursor that go out again on a new connection: the old one may have lost them
RETRY_SECONDS = 15.0


class AuditPush:
    """The loop that pushes."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current

    async def serve(self) -> None:
        """Push until cancelled, with the receiver of the configuration in force."""
        await run_forever("audit push", self._step)

    async def _step(self) -> None:
        config = self._current.config.audit.push
        if not config.target:
            await asyncio.sleep(LOOK_SECONDS)
            return
        try:
            async with connected(config) as receiver:
                log.info("audit.push_connected")
                await self._push(config, receiver)
        except (NotTaken, OSError) as error:  # a TimeoutError is an OSError
            log.warning("audit.push_later reason=%s", str(error) or type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)

    async def _push(self, config: AuditPushConfig, receiver: Receiver) -> None:
        """Push over one connection, as long as the configuration names this receiver. Raises as `Receiver.send`."""
        cursor = await self._store.run(partial(read_cursor, target=config.target))
        if config.syslog:  # it does not say what it has stored
            cursor = max(0, cursor - SENT_AGAIN)
        anchored = -1
        while self._current.config.audit.push == config:
            rows, names = await self._store.run(partial(_read, after=cursor))
            if rows:
                lines = [describe_row(row, names) for row in rows]
                await receiver.send([(str(each["@timestamp"]), as_line(each)) for each in lines])
                cursor = rows[-1].seq
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


def _read(execute: Execute, after: int) -> tuple[Sequence[AuditRow], dict[str, str]]:
    """Return the next rows, up to the first that is damaged, and who their pseudonyms are."""
    rows = [*takewhile(_is_whole, audit.read_page(execute, after, BATCH_ROWS))]
    aliases = {str(row.event[name]) for row in rows for name in NAMED_FIELDS if name in row.event}
    return rows, audit.find_names(execute, aliases) if aliases else {}


def _is_whole(row: AuditRow) -> bool:
    try:
        return isinstance(row.event.get("at"), int) and "kind" in row.event
    except ValueError:
        log.error("audit.damaged seq=%d — `fawn audit verify` says more", row.seq)  # noqa: TRY400 — it has no trace
        return False
