"""Who works on a conversation: claim it, take its messages as a run, end the run, let go. All inside transactions.

A claim gives a fencing number; whatever ends a run checks it, so a worker that lost its lease changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from agent.conversation import Ask, Kind, Message, Thread, Usage
from agent.desk import Answer
from bot import book, posts
from bot.store import Execute, Row
from channels.base import Posted

TTL = 30.0  # seconds a lease lives without being renewed
MOST = 50  # messages taken into one run


class LostLease(Exception):
    """Somebody else works on this conversation now: nothing of this worker's run was recorded."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run to do: the claimed conversation and what it must answer."""

    conversation: str
    thread: Thread
    fence: int
    run: int
    attempt: int
    requester: str
    started: float  # unix time of the first try
    reply_to: str
    messages: tuple[Message, ...]
    answer: Answer | None
    model: str
    title: str
    fresh: bool  # nothing unfinished can be in the checkpoint
    resumed: bool  # it was begun or queued before: more may have been written into it
    stop_by: str  # somebody stopped it before a restart
    posted: tuple[Posted, ...]  # what is visible of its reply already


def claim(execute: Execute, owner: str, now: float, free: int) -> list[Job]:
    """Lease up to `free` conversations that have work, oldest first, and take what is ready in each."""
    rows = execute(
        "UPDATE conversations SET owner=:owner, until=:until, fence=fence+1 WHERE key IN"
        " (SELECT key FROM conversations WHERE pending>0 AND ready<=:now AND until<:now ORDER BY ready LIMIT :free)"
        " RETURNING *",
        {"owner": owner, "until": now + TTL, "now": now, "free": free},
    )
    jobs = []
    for row in sorted(rows, key=lambda row: float(row["ready"])):
        job = _resume(execute, row, now) or _take(execute, row, now)
        if job:
            jobs.append(job)
        else:  # only answers to questions that are closed: done, nothing to say
            book.recount(execute, row["key"])
            release(execute, row["key"], row["fence"])
    return jobs


def _resume(execute: Execute, row: Row, now: float) -> Job | None:
    """Go on with the run that a crash or a stop of the service interrupted."""
    runs = execute(
        "UPDATE runs SET state='running', attempt=attempt+1 WHERE id="
        "(SELECT id FROM runs WHERE conversation=:key AND state IN ('queued', 'running') ORDER BY id LIMIT 1)"
        " RETURNING *",
        {"key": row["key"]},
    )
    if not runs:
        return None
    run = runs[0]
    taken = execute("SELECT * FROM inbox WHERE run=:run AND steered=0 ORDER BY id", {"run": run["id"]})
    return _job(row, run, _merge(taken), _answer(row, taken), posts.known(execute, f"r{run['id']}"))


def _take(execute: Execute, row: Row, now: float) -> Job | None:
    """Make a new run of the messages that are ready."""
    waiting = row["state"] == "waiting"
    rows = execute(
        f"SELECT * FROM inbox WHERE conversation=:key AND run IS NULL AND {book.OPEN} ORDER BY id LIMIT :most",  # noqa: S608 — constants
        {"key": row["key"], "most": MOST},
    )
    taken: list[Row] = []
    for inbox in rows:
        if inbox["ready"] > now or (waiting and taken and not inbox["bundle"]):
            break  # nobody is overtaken; the answer to an open question goes alone, the rest follows while it works
        if inbox["kind"] == Kind.CLICK and not _answers(row, inbox):
            execute("UPDATE inbox SET state=1, error='question closed' WHERE id=:id", {"id": inbox["id"]})
            continue
        taken.append(inbox)
    if not taken:
        return None
    return start(execute, row, taken, "running", now)


def start(execute: Execute, row: Row, taken: Sequence[Row], state: str, now: float) -> Job:
    """Write the run that answers `taken` (rows of the inbox) in the conversation `row`."""
    first = Message.load(taken[0]["payload"])
    runs = execute(
        "INSERT INTO runs(id, conversation, requester, reply_to, state, attempt, model, started)"
        " VALUES (:id, :key, :requester, :reply_to, :state, :attempt, :model, :now)"
        " ON CONFLICT(id) DO UPDATE SET state=excluded.state RETURNING *",
        {
            "id": taken[0]["id"],
            "key": row["key"],
            "requester": first.author.id,
            "reply_to": first.id,
            "state": state,
            "attempt": int(state == "running"),  # one that only waits for a place was not tried yet
            "model": row["model"],
            "now": now,
        },
    )
    for inbox in taken:
        execute("UPDATE inbox SET run=:run WHERE id=:id", {"run": taken[0]["id"], "id": inbox["id"]})
    return _job(row, runs[0], _merge(taken), _answer(row, taken))


def _job(
    row: Row, run: Row, messages: tuple[Message, ...], answer: Answer | None, posted: Sequence[Posted] | None = None
) -> Job:
    return Job(
        conversation=row["key"],
        thread=Thread.parse(row["thread"]),
        fence=row["fence"],
        run=run["id"],
        attempt=run["attempt"],
        requester=run["requester"],
        started=run["started"],
        reply_to=run["reply_to"],
        messages=messages,
        answer=answer,
        model=row["model"],
        title=row["title"],
        fresh=run["attempt"] <= 1 and row["state"] == "idle",
        resumed=posted is not None,
        stop_by=run["stop_by"],
        posted=tuple(posted or ()),
    )


def _merge(rows: Sequence[Row]) -> tuple[Message, ...]:
    """Pieces of one bundle are one message: texts joined, files together, the first piece's key."""
    merged: dict[str, Message] = {}
    for row in rows:
        message = Message.load(row["payload"])
        name = row["bundle"] or message.key
        if name not in merged:
            merged[name] = message
            continue
        whole = merged[name]
        between = "" if len(whole.text.encode("utf-16-le")) // 2 % 4096 == 0 else "\n"  # cut at the platform's limit
        merged[name] = replace(
            whole,
            text=between.join(part for part in (whole.text, message.text) if part),
            attachments=whole.attachments + message.attachments,
            quotes=whole.quotes + message.quotes,
        )
    return tuple(merged.values())


def asks(row: Row) -> list[Ask]:
    """The open questions of a conversation."""
    return [Ask(**{**ask, "options": tuple(ask["options"])}) for ask in orjson.loads(row["asks"] or b"[]")]


def open_question(execute: Execute, key: str, ask: str) -> bool:
    """Whether a conversation waits for the answer to `ask` and nobody has given one yet."""
    rows = execute("SELECT state, asks, pending FROM conversations WHERE key=:key", {"key": key})
    row = rows[0] if rows else None
    return bool(row and row["state"] == "waiting" and not row["pending"] and any(ask == open.id for open in asks(row)))


def _answers(row: Row, inbox: Row) -> bool:
    target = Message.load(inbox["payload"]).target
    return row["state"] == "waiting" and any(ask.id == target for ask in asks(row))


def _answer(row: Row, taken: Sequence[Row]) -> Answer | None:
    """What the first message says to the open question, if there is one."""
    if row["state"] != "waiting" or not taken:
        return None
    first = _merge(taken)[0]
    return Answer(first.target, first.text) if first.kind is Kind.CLICK else Answer("", first.text)


def more(execute: Execute, job: Job, now: float) -> tuple[list[Message], bool]:
    """What was written into the running turn since: taken into it, and whether pieces still wait for each other."""
    rows = execute(
        "SELECT * FROM inbox WHERE conversation=:key AND state=0 AND kind='chat'"
        " AND (run IS NULL OR (run=:run AND steered=1)) ORDER BY id LIMIT :most",
        {"key": job.conversation, "run": job.run, "most": MOST},
    )
    taken: list[Row] = []
    for row in rows:
        if row["ready"] > now:
            break
        taken.append(row)
        execute("UPDATE inbox SET run=:run, steered=1 WHERE id=:id", {"run": job.run, "id": row["id"]})
    return list(_merge(taken)), len(taken) < len(rows)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    state: str  # done, waiting, stopped, failed
    usage: Usage
    asks: tuple[Ask, ...] = ()
    title: str = ""
    clean: bool = True  # the checkpoint holds nothing unfinished


def finish(execute: Execute, job: Job, ending: Ending, now: float) -> bool:
    """Record the end of a run. True when the conversation has further messages.

    Raises LostLease (which undoes the transaction) when the conversation was given to somebody else.
    """
    state = "waiting" if ending.state == "waiting" else "idle" if ending.clean else "dirty"
    rows = execute(
        "UPDATE conversations SET state=:state, asks=:asks, used=:now,"
        " title=CASE title WHEN '' THEN :title ELSE title END WHERE key=:key AND fence=:fence RETURNING key",
        {
            "state": state,
            "asks": orjson.dumps(ending.asks).decode(),
            "now": now,
            "title": ending.title,
            "key": job.conversation,
            "fence": job.fence,
        },
    )
    if not rows:
        raise LostLease(job.conversation)
    execute("UPDATE inbox SET state=1 WHERE run=:run AND state=0", {"run": job.run})
    execute(
        "UPDATE runs SET state=:state, finished=:now, input=:input, output=:output, cached=:cached, calls=:calls"
        " WHERE id=:run",
        {
            "state": ending.state,
            "now": now,
            "run": job.run,
            "input": ending.usage.input,
            "output": ending.usage.output,
            "cached": ending.usage.cached,
            "calls": ending.usage.calls,
        },
    )
    execute("DELETE FROM ledger WHERE conversation=:key", {"key": job.conversation})
    more = book.recount(execute, job.conversation)
    release(execute, job.conversation, job.fence)
    return more


def park(execute: Execute, job: Job) -> None:
    """The service stops: the run stays as it is, and this try does not count."""
    execute("UPDATE runs SET attempt=attempt-1 WHERE id=:run", {"run": job.run})
    execute("UPDATE conversations SET state='dirty' WHERE key=:key AND state='idle'", {"key": job.conversation})
    release(execute, job.conversation, job.fence)


def release(execute: Execute, key: str, fence: int) -> None:
    """Let the conversation go."""
    execute(
        "UPDATE conversations SET owner=NULL, until=0 WHERE key=:key AND fence=:fence", {"key": key, "fence": fence}
    )


def renew(execute: Execute, owner: str, now: float) -> None:
    """Keep all leases of this worker."""
    execute("UPDATE conversations SET until=:until WHERE owner=:owner", {"until": now + TTL, "owner": owner})


def take_over(execute: Execute) -> None:
    """The lock on data_dir says that we are alone: whatever a dead process held is free at once."""
    execute(
        "UPDATE conversations SET owner=NULL, until=0,"
        " state=CASE state WHEN 'idle' THEN 'dirty' ELSE state END WHERE owner IS NOT NULL",
        {},
    )
    execute("UPDATE outbox SET state=0 WHERE state=1", {})
