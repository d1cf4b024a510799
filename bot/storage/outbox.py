"""Outbox rows: what must become visible, each row once.

Dead letters: deliveries that failed for good, and events that cannot be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from agent.blocks import Ask, Final
from agent.messages import Thread
from agent.stored_json import build_dataclass
from bot.database.database import Execute, Row
from bot.database.dialect import PAYLOAD_BYTES, AdvisoryLock, lock_until_commit
from bot.database.replicas import DEAD_OR_NO_OWNER, DEAD_OWNER, HOST, LIVES_ELSEWHERE
from bot.database.rows import insert_row, parse_row_id, read_rows
from bot.database.states import InboxState, OutboxKind, OutboxState
from bot.storage.conversations import find_conversation
from bot.storage.questions import QuestionRow
from bot.storage.sent_messages import is_of_run, reset_posts
from catalogue import current_language

log = logging.getLogger(__name__)

_FILES_HERE = f"(host='' OR host={HOST} OR (created<:late AND NOT ({LIVES_ELSEWHERE})))"
_OPEN = f"p.state IN ({OutboxState.NEW}, {OutboxState.CLAIMED})"
_HELD_UP = f"EXISTS (SELECT 1 FROM outbox p WHERE {_OPEN} AND p.thread=o.thread AND p.id<o.id AND p.owner<>:owner)"
_NOT_MINE = f"(p.state={OutboxState.NEW} OR coalesce(p.owner, '')<>:owner)"
_OTHERS = f"EXISTS (SELECT 1 FROM outbox p WHERE {_OPEN} AND p.thread=c.thread AND {_NOT_MINE})"
_INSERT_CLAIMED = (
    "INSERT INTO outbox(key, kind, thread, conversation, run, reply_to, person, language, payload, state, host, owner,"
    " created) SELECT :key, :kind, c.thread, c.key, r.id, r.reply_to, r.requester, :language, :payload,"
)
_OF_RUN = (
    ":owner, :now FROM runs r JOIN conversations c ON c.key=r.conversation WHERE r.id=:run"
    " ON CONFLICT(key) DO NOTHING RETURNING *"
)
_STATE = f"CASE WHEN {_OTHERS} THEN {OutboxState.NEW} ELSE {OutboxState.CLAIMED} END"
# (shared, a file) → what enqueues. With parameters instead, PostgreSQL would plan it anew each time, since a plan for
# their values, which leaves out what need not be looked at, seems cheaper than that which it keeps.
_ENQUEUE = {
    (False, False): f"{_INSERT_CLAIMED} {OutboxState.CLAIMED}, '', {_OF_RUN}",
    (False, True): f"{_INSERT_CLAIMED} {OutboxState.CLAIMED}, {HOST}, {_OF_RUN}",
    (True, False): f"{_INSERT_CLAIMED} {_STATE}, '', {_OF_RUN}",
    (True, True): f"{_INSERT_CLAIMED} {_STATE}, {HOST}, {_OF_RUN}",
}
_LOCK_CLAIMS = lock_until_commit(AdvisoryLock.OUTBOX)
_CLAIM = (
    f"UPDATE outbox SET state={OutboxState.CLAIMED}, owner=:owner WHERE state={OutboxState.NEW} AND id IN"
    f" (SELECT id FROM outbox WHERE state={OutboxState.NEW} ORDER BY id LIMIT :limit) RETURNING *"
)
_CLAIM_SHARED = (
    f"UPDATE outbox SET state={OutboxState.CLAIMED}, owner=:owner WHERE state={OutboxState.NEW} AND id IN"
    f" (SELECT id FROM outbox o WHERE state={OutboxState.NEW} AND coalesce(owner, :owner)=:owner AND NOT {_HELD_UP}"
    f" AND {_FILES_HERE} AND instr(:without, ',' || substr(thread, 1, instr(thread, '/')-1) || ',')=0"
    " ORDER BY id LIMIT :limit) RETURNING *"
)
_RELEASE = f"UPDATE outbox SET state={OutboxState.NEW}, owner=NULL"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that delivers. `shared`: others do, too. `without`: channels that only another one can post to."""

    owner: str
    shared: bool = False
    without: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """A claimed row of the outbox."""

    id: int
    kind: str
    thread: Thread
    conversation: str
    run: int | None
    reply_to: str
    person: str
    payload: bytes
    attempts: int
    created: float
    language: str
    state: int = OutboxState.CLAIMED

    @classmethod
    def from_row(cls, row: Row) -> OutboxItem:
        """Raises ValueError, TypeError or AttributeError where the row is damaged."""
        return build_dataclass(cls, {**dict(row), "thread": Thread.parse(row["thread"])})

    @property
    def reply_key(self) -> str:
        """The key of the platform messages that show this row."""
        return f"r{self.run}" if self.kind == OutboxKind.REPLY else f"o{self.id}"


def enqueue_notice(
    execute: Execute,
    thread: Thread | str,
    text: str,
    *,
    key: str,
    now: float,
    reply_to: str = "",
    asks: tuple[Ask, ...] = (),
    conversation: str = "",
    mention: str = "",
    run: int | None = None,
    reader: str = "",
    careful: bool = False,
) -> None:
    """Enqueue a notice of the bot itself, in the current language. A second one with this `key` is not enqueued.

    `run` is the run that asks for an approval with it, in another chat. `reader` is the only person whom it concerns.
    A `careful` one waits until the platform answers (`Final.careful`).
    """
    payload = Final(text, asks, mention, reader=reader, careful=careful).dump()
    values = {"kind": OutboxKind.SAY, "thread": str(thread), "payload": payload, "reply_to": reply_to}
    values["conversation"] = conversation
    rest = {"key": key, "created": now, "language": current_language(), "run": run}
    insert_row(execute, "outbox", "key", values | rest)


def enqueue_settled(execute: Execute, question: QuestionRow, now: float, *, cause: str, pressed: str = "") -> None:
    """Let the messages that show a question show what became of it, in each chat that was asked.

    The question and its run have one such edit for each `cause`. `pressed` is the id of the message with the pressed
    button: its channel has changed it.
    """
    row = find_conversation(execute, question.conversation)
    threads = {row.thread: None} if row else {}
    threads |= {question.asked_in: None} if question.asked_in else {}
    for number, thread in enumerate(threads):
        values = {"key": f"settled:{question.conversation}:{question.id}:{question.run}:{cause}:{number}"}
        values |= {"kind": OutboxKind.SETTLED, "thread": thread, "conversation": question.conversation}
        rest = {"run": question.run, "payload": Final("", (Ask(question.id, ""),)).dump(), "created": now}
        rest |= {"reply_to": pressed, "language": current_language()}
        insert_row(execute, "outbox", "key", values | rest)


def find_shown(execute: Execute, reply: str) -> OutboxItem | None:
    """Return the row whose messages have this key (`OutboxItem.reply_key`); None where it is gone."""
    if reply.startswith("r"):
        return find_row(execute, f"run:{reply[1:]}")
    rows = execute("SELECT * FROM outbox WHERE id=:id", {"id": int(reply[1:])})
    return OutboxItem.from_row(rows[0]) if rows else None


def find_row(execute: Execute, key: str) -> OutboxItem | None:
    """Return a row by its key."""
    rows = execute("SELECT * FROM outbox WHERE key=:key", {"key": key})
    return OutboxItem.from_row(rows[0]) if rows else None


def undelivered_rows(execute: Execute, keys: Collection[str]) -> list[int]:
    """Return the rows with these keys that are to be delivered."""
    rows = filter(None, (find_row(execute, key) for key in keys))
    return [row.id for row in rows if row.state in (OutboxState.NEW, OutboxState.CLAIMED)]


def find_row_of_reply(execute: Execute, reply: str) -> OutboxItem | None:
    """Return the row that delivers a reply, by the reply's key (`StoredSentMessages`)."""
    if is_of_run(reply):
        return find_row(execute, f"run:{reply[1:]}")
    rows = execute("SELECT * FROM outbox WHERE id=:id", {"id": int(reply[1:])})
    return OutboxItem.from_row(rows[0]) if rows else None


def deliver_again(execute: Execute, row: int) -> None:
    """Let a delivered row be delivered again, as if it were new."""
    execute(f"UPDATE outbox SET state={OutboxState.NEW}, attempts=0, error='' WHERE id=:id", {"id": row})


def enqueue_files(execute: Execute, thread: Thread, payload: bytes, *, key: str, now: float) -> None:
    """Enqueue files that no run made. `payload` is what `bot.journey.outbox.files_payload` returns."""
    values = {"kind": OutboxKind.FILE, "thread": str(thread), "payload": payload, "language": current_language()}
    insert_row(execute, "outbox", "key", {"key": key, "created": now} | values)


def enqueue_text_file(execute: Execute, thread: Thread, name: str, text: str, *, key: str, now: float) -> None:
    """Enqueue a text as a file, which is written when it is delivered."""
    data = text.encode("utf-8", "replace")
    file = {"path": "", "name": name, "size": len(data), "caption": "", "text": data.decode()}
    enqueue_files(execute, thread, orjson.dumps([file]), key=key, now=now)


def latest_notice(execute: Execute, prefix: str) -> float:
    """Return when the latest row whose key begins with `prefix` was enqueued; 0 for none."""
    [row] = execute("SELECT max(created) AS at FROM outbox WHERE key>:key AND key<:key || '~'", {"key": prefix})
    return row["at"] or 0.0


def count_notices(execute: Execute, prefix: str, since: float = 0.0) -> int:
    """Count the rows whose key begins with `prefix`, and that are newer than `since`."""
    sql = "SELECT count(*) AS n FROM outbox WHERE key>:key AND key<:key || '~' AND created>:since"
    [row] = execute(sql, {"key": prefix, "since": since})
    return int(row["n"])


def enqueue_claimed(
    execute: Execute, holder: Holder, run: int, kind: OutboxKind, key: str, payload: bytes, now: float
) -> list[OutboxItem]:
    """Enqueue what the end of a run delivers, claimed by its process: `Outbox.offer` it after the commit.

    While another process delivers in this thread, the row waits for that, and only for its own process: it has the
    reply that streams. The address is the conversation's, which may have moved since the run began. Empty when the row
    is there already.
    """
    rows = execute(
        _ENQUEUE[holder.shared, kind == OutboxKind.FILE],
        {
            "key": key,
            "kind": kind,
            "run": run,
            "payload": payload,
            "now": now,
            "owner": holder.owner,
            "language": current_language(),
        },
    )
    return [OutboxItem.from_row(row) for row in rows]


def claim_rows(execute: Execute, holder: Holder, limit: int, late: float = 0.0) -> list[OutboxItem]:
    """Claim new rows for a process, oldest first. A row that cannot be read becomes a dead letter.

    Where others deliver, too, those of one thread go through one process at a time, and so in order. Files in the
    data_dir of another process wait for it; where it is dead, those that were enqueued before `late` do not.
    """
    values = {"owner": holder.owner, "limit": limit}
    if holder.shared:
        if not execute(f"SELECT 1 FROM outbox WHERE state={OutboxState.NEW} LIMIT 1", {}):
            return []
        execute(_LOCK_CLAIMS, {})
        rows = execute(_CLAIM_SHARED, {**values, "late": late, "without": f",{','.join(holder.without)},"})
    else:
        rows = execute(_CLAIM, values)
    items = []
    for row in sorted(rows, key=lambda row: int(row["id"])):
        try:
            items.append(OutboxItem.from_row(row))
        except (ValueError, TypeError, AttributeError) as error:
            log.error("outbox.damaged row=%d reason=%r", row["id"], error)  # noqa: TRY400 — the reason is enough
            end_row(execute, row["id"], OutboxState.DEAD, repr(error))
    return items


def record_attempt(execute: Execute, row: int, attempts: int, error: str) -> None:
    """Record a failed attempt and its reason."""
    sql = "UPDATE outbox SET attempts=:attempts, error=:error WHERE id=:id"
    execute(sql, {"id": row, "attempts": attempts, "error": error})


def end_row(execute: Execute, row: int, state: OutboxState, error: str) -> None:
    """Record how the last attempt of a row ended."""
    sql = "UPDATE outbox SET state=:state, owner=NULL, error=:error, attempts=attempts+1 WHERE id=:id"
    execute(sql, {"id": row, "state": state, "error": error})


def release_stale_rows(execute: Execute) -> None:
    """Release what dead processes had claimed, and what waits for them."""
    execute(f"{_RELEASE} WHERE state={OutboxState.CLAIMED} AND {DEAD_OR_NO_OWNER}", {})
    execute(f"{_RELEASE} WHERE state={OutboxState.NEW} AND {DEAD_OWNER}", {})


def give_back(execute: Execute, row: int) -> None:
    """Let another process deliver a row, which this one cannot."""
    execute(f"{_RELEASE} WHERE id=:id", {"id": row})


def count_unfinished(execute: Execute) -> Mapping[OutboxState, int]:
    """Count new and claimed rows and dead letters."""
    states = f"{OutboxState.NEW}, {OutboxState.CLAIMED}, {OutboxState.DEAD}"
    rows = execute(f"SELECT state, count(*) AS n FROM outbox WHERE state IN ({states}) GROUP BY state", {})
    return Counter({OutboxState(row["state"]): row["n"] for row in rows})


@dataclass(frozen=True, slots=True)
class UnfinishedRow:
    """A row that is not delivered yet; `error` is the reason of the last failure, "" where there was none."""

    id: int
    thread: str
    created: float
    error: str


def oldest_rows(execute: Execute, without: Collection[int] = (), limit: int = 1) -> list[UnfinishedRow]:
    """Return the oldest rows that are not delivered yet, `without` some."""
    states = f"{OutboxState.NEW}, {OutboxState.CLAIMED}"
    sql = f"SELECT id, thread, created, error FROM outbox WHERE state IN ({states}) ORDER BY created LIMIT :most"
    rows = read_rows(execute, UnfinishedRow, sql, most=len(without) + limit)
    return [row for row in rows if row.id not in without][:limit]


def oldest_unfinished(execute: Execute, without: Collection[int] = ()) -> float:
    """Return when the oldest row was enqueued that is not delivered yet, `without` some; 0 for none."""
    return next((row.created for row in oldest_rows(execute, without)), 0.0)


def about_stranger(channel: str, person: str) -> str:
    """Return how the keys of questions to operators about a stranger begin."""
    return f"asked:{channel}:{person}:"


def folder_names(payload: bytes) -> Collection[str]:
    """Return the folders of the spool that the payload of a row with files names; none if it is damaged."""
    try:
        entries = orjson.loads(payload)
        return {Path(each["path"]).parent.name for each in entries if each["path"]}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()


EVENT_PREFIX = "in"  # of the id of an event
EVERY = 1 << 31  # rows


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. `kind` is an `OutboxKind`, "" for an event."""

    id: str
    kind: str
    thread: str
    created: float
    error: str
    raw: bytes


def list_dead(execute: Execute, after: str = "", limit: int = EVERY) -> list[DeadLetter]:
    """Return dead letters, deliveries first: up to `limit` behind this id, "" for the first ones."""
    deliveries = (
        f"SELECT CAST(id AS TEXT) AS id, kind, thread, created, error, {PAYLOAD_BYTES} AS raw"
        f" FROM outbox WHERE state={OutboxState.DEAD} AND outbox.id>:after ORDER BY outbox.id LIMIT :limit"
    )
    events = (
        f"SELECT '{EVENT_PREFIX}' || id AS id, '' AS kind, '' AS thread, received AS created, error,"
        f" {PAYLOAD_BYTES} AS raw FROM inbox WHERE state={InboxState.DEAD} AND inbox.id>:after"
        " ORDER BY inbox.id LIMIT :limit"
    )
    found, number = [], parse_row_id(after.removeprefix(EVENT_PREFIX)) or 0
    if not after.startswith(EVENT_PREFIX):
        found = read_rows(execute, DeadLetter, deliveries, after=number, limit=limit)
        number = 0
    return found + read_rows(execute, DeadLetter, events, after=number, limit=limit - len(found))


def requeue_dead(execute: Execute, row: int) -> bool:
    """Requeue a delivery as if it were new; what may be visible of it is still marked as a repeat.

    Returns whether there was one.
    """
    rows = execute(
        f"UPDATE outbox SET state={OutboxState.NEW}, attempts=0, error=''"
        f" WHERE id=:id AND state={OutboxState.DEAD} RETURNING *",
        {"id": row},
    )
    for found in rows:
        reset_posts(execute, OutboxItem.from_row(found).reply_key)
    return bool(rows)


def drop_delivery(execute: Execute, row: int) -> bool:
    """Forget a delivery; return whether there was one."""
    sql = f"UPDATE outbox SET state={OutboxState.DROPPED} WHERE id=:id AND state={OutboxState.DEAD} RETURNING id"
    return bool(execute(sql, {"id": row}))


def drop_event(execute: Execute, row: int) -> bool:
    """Forget an event; return whether there was one."""
    sql = f"UPDATE inbox SET state={InboxState.WITHDRAWN} WHERE id=:id AND state={InboxState.DEAD} RETURNING id"
    return bool(execute(sql, {"id": row}))
