"""Runs: claim a conversation, turn its messages into a run, finish it, release it.

One process works on a data_dir, so a lease has no time: a claimed conversation is let go by the end of its turn, or by
the next start. A claim gives a fencing number; whatever ends a run checks it, so a worker that lost its lease changes
nothing.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile

import orjson

from agent.blocks import Ask, Usage
from agent.context import Answer
from agent.messages import Message, Thread
from agent.stored_json import Damaged, build_dataclass, raise_damaged
from bot import questions
from bot.storage import conversations, sent_messages
from bot.storage.database import Execute, Row
from channels.base import SentMessage

log = logging.getLogger(__name__)

MAX_MESSAGES_PER_RUN = 50  # messages taken into one run
# Conversations that may be taken. What is ready later than the longest legal wait was stored before the clock was set
# back: it waits no longer.
READY = "pending>0 AND owner IS NULL AND (ready<=:ready OR ready>:latest)"


class LeaseLost(Exception):
    """Somebody else works on this conversation now: nothing of this worker's run was recorded."""


@dataclass(frozen=True, slots=True)
class ClaimedRun:
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
    answers: tuple[Answer, ...]
    model: str
    title: str
    first: bool  # of its conversation: no run before it came to an end
    fresh: bool  # nothing unfinished can be in the checkpoint
    resumed: bool  # more may have been written into it: it was begun or queued before, or it takes only answers
    stop_by: str  # somebody stopped it before a restart
    posted: tuple[SentMessage, ...]  # what is visible of its reply already


def claim_conversations(execute: Execute, owner: str, now: float, longest: float, free: int) -> list[ClaimedRun]:
    """Lease up to `free` conversations that have work, oldest first, and take what is ready in each.

    `longest` is the longest time (seconds) that a message may have to wait until it is ready.
    """
    rows = execute(
        f"SELECT key FROM conversations WHERE {READY} ORDER BY ready LIMIT :free",  # noqa: S608 — constants
        {"ready": now, "latest": now + longest, "free": free},
    )
    return [job for row in rows if (job := _claim(execute, row["key"], owner, now, longest))]


def _claim(execute: Execute, key: str, owner: str, now: float, longest: float) -> ClaimedRun | None:
    (row,) = execute(
        "UPDATE conversations SET owner=:owner, fence=fence+1 WHERE key=:key RETURNING *", {"owner": owner, "key": key}
    )
    job = _guarded(
        execute,
        key,
        now,
        lambda: _resume_run(execute, row, now) or _take_messages(execute, row, "running", now, longest),
    )
    if not job:
        release_conversation(execute, key, row["fence"])
    return job


def wait_in_line(execute: Execute, now: float, longest: float, patience: float) -> list[ClaimedRun]:
    """Make runs, in state `queued`, of the conversations that have been ready for `patience` seconds."""
    rows = execute(
        f"SELECT * FROM conversations WHERE {READY} AND state<>'waiting' AND NOT EXISTS"  # noqa: S608 — constants
        " (SELECT 1 FROM runs WHERE conversation=conversations.key AND state IN ('queued', 'running'))"
        " ORDER BY ready LIMIT 100",
        {"ready": now - patience, "latest": now + longest},
    )
    made = [
        _guarded(execute, row["key"], now, partial(_take_messages, execute, row, "queued", now, longest))
        for row in rows
    ]
    return [job for job in made if job]


def _guarded(execute: Execute, key: str, now: float, take: Callable[[], ClaimedRun | None]) -> ClaimedRun | None:
    """What `take` makes of this conversation; one that cannot be read must not keep the others waiting."""
    try:
        job = take()
    except sqlite3.OperationalError:
        raise  # the store's fault, not this conversation's
    except Exception as error:  # the boundary of one conversation
        log.exception("lease.unreadable conversation=%s", key)
        _give_up(execute, key, error, now)
        job = None
    if not job:  # nothing to say: only answers to questions that are closed, or what cannot be read
        conversations.refresh_pending(execute, key)
    return job


def _give_up(execute: Execute, key: str, error: Exception, now: float) -> None:
    """End what is open in a conversation that cannot be read; what is written later is taken as ever."""
    rows = execute(
        f"SELECT id, conversation FROM inbox WHERE conversation=:key AND {conversations.OPEN_ROWS}",  # noqa: S608 — constants
        {"key": key},
    )
    conversations.bury(execute, rows, error, now)
    execute(
        "UPDATE runs SET state='failed', finished=:now WHERE conversation=:key AND state IN ('queued', 'running')",
        {"key": key, "now": now},
    )
    execute("UPDATE conversations SET state='dirty', asks='' WHERE key=:key", {"key": key})


def _is_ready(row: Row, now: float, longest: float) -> bool:
    """Whether an inbox row may be taken. See READY."""
    return bool(row["ready"] <= now or row["ready"] > now + longest)


def _readable(execute: Execute, rows: Sequence[Row], now: float) -> list[Row]:
    """The inbox rows among these that can be read. The others become dead letters."""
    kept = []
    for row in rows:
        try:
            Message.load(row["payload"])
        except Damaged as error:
            conversations.bury(execute, [row], error, now)
        else:
            kept.append(row)
    return kept


def _resume_run(execute: Execute, row: Row, now: float) -> ClaimedRun | None:
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
    return _claimed_run(
        row, run, _readable(execute, taken, now), sent_messages.known_messages(execute, f"r{run['id']}")
    )


def _take_messages(execute: Execute, row: Row, state: str, now: float, longest: float) -> ClaimedRun | None:
    """Make a new run of the messages that are ready."""
    rows = execute(
        f"SELECT * FROM inbox WHERE conversation=:key AND run IS NULL AND {conversations.OPEN_ROWS}"  # noqa: S608 — constants
        " ORDER BY id LIMIT :most",
        {"key": row["key"], "most": MAX_MESSAGES_PER_RUN},
    )
    ready = list(takewhile(lambda inbox: _is_ready(inbox, now, longest), _readable(execute, rows, now)))
    messages = _merged(ready)  # nobody is overtaken
    bound = questions.bind(open_questions(row), messages.values())
    for message, words in bound.refused:
        conversations.enqueue_notice(
            execute, message.thread, words, key=f"refused:{message.key}", now=now, reply_to=message.id
        )
    keys = {answer.key for answer in bound.answers} or {*bound.rest}  # answers go first, the rest follows at once
    taken = []
    for inbox in ready:
        key = messages[_name(inbox)].key
        if key in keys:
            taken.append(inbox)
        elif key not in bound.rest:
            execute("UPDATE inbox SET state=1, error='answers nothing' WHERE id=:id", {"id": inbox["id"]})
    if not taken:
        return None
    job = start_run(execute, row, taken, state, now)
    return replace(job, resumed=bool(bound.answers))


def start_run(execute: Execute, row: Row, taken: Sequence[Row], state: str, now: float) -> ClaimedRun:
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
    return _claimed_run(row, runs[0], taken)


def _claimed_run(row: Row, run: Row, taken: Sequence[Row], posted: Sequence[SentMessage] | None = None) -> ClaimedRun:
    messages = tuple(_merged(taken).values())
    return ClaimedRun(
        conversation=row["key"],
        thread=Thread.parse(row["thread"]),
        fence=row["fence"],
        run=run["id"],
        attempt=run["attempt"],
        requester=run["requester"],
        started=run["started"],
        reply_to=run["reply_to"],
        messages=messages,
        answers=tuple(questions.bind(open_questions(row), messages).answers),
        model=row["model"],
        title=row["title"],
        first=row["used"] == row["created"],
        fresh=run["attempt"] <= 1 and row["state"] == "idle",
        resumed=posted is not None,
        stop_by=run["stop_by"],
        posted=tuple(posted or ()),
    )


def _name(row: Row) -> str:
    """What pieces of one message have in common."""
    return str(row["bundle"] or row["key"])


def _merged(rows: Sequence[Row]) -> dict[str, Message]:
    """Pieces of one bundle are one message: texts joined, files together, the first piece's key."""
    merged: dict[str, Message] = {}
    for row in rows:
        message = Message.load(row["payload"])
        name = _name(row)
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
    return merged


def open_questions(row: Row) -> tuple[Ask, ...]:
    """The questions that a conversation waits for. Raises Damaged."""
    with raise_damaged():
        dumped = orjson.loads(row["asks"]) if row["state"] == "waiting" and row["asks"] else ()
        return tuple(build_dataclass(Ask, ask) for ask in dumped)


def is_open_question(execute: Execute, key: str, ask: str, now: float) -> bool:
    """Whether a conversation waits for the answer to `ask` and nobody has given one yet. Answers to other questions may
    be on their way, or worked on."""
    rows = execute("SELECT * FROM conversations WHERE key=:key", {"key": key})
    if not rows or ask not in {each.id for each in open_questions(rows[0])}:
        return False
    said = execute(
        f"SELECT * FROM inbox WHERE conversation=:key AND {conversations.OPEN_ROWS} ORDER BY id",  # noqa: S608 — constants
        {"key": key},
    )
    messages = _merged(_readable(execute, said, now))
    return ask not in {answer.id for answer in questions.bind(open_questions(rows[0]), messages.values()).answers}


def take_steering(execute: Execute, job: ClaimedRun, now: float, longest: float) -> tuple[list[Message], bool]:
    """What was written into the running turn since: taken into it, and whether pieces still wait for each other."""
    rows = execute(
        "SELECT * FROM inbox WHERE conversation=:key AND state=0 AND kind='chat'"
        " AND (run IS NULL OR (run=:run AND steered=1)) ORDER BY id LIMIT :most",
        {"key": job.conversation, "run": job.run, "most": MAX_MESSAGES_PER_RUN},
    )
    rows, taken = _readable(execute, rows, now), []
    for row in rows:
        if not _is_ready(row, now, longest):
            break
        taken.append(row)
        execute("UPDATE inbox SET run=:run, steered=1 WHERE id=:id", {"run": job.run, "id": row["id"]})
    return list(_merged(taken).values()), len(taken) < len(rows)


def steered(execute: Execute, job: ClaimedRun) -> list[Message]:
    """What `take_steering` has taken into the run."""
    rows = execute("SELECT * FROM inbox WHERE run=:run AND steered=1 AND state<2 ORDER BY id", {"run": job.run})
    return list(_merged(rows).values())


def add_usage(execute: Execute, run: int, usage: Usage, model: str = "") -> None:
    """Add model calls to what a run used, and note which model answers it."""
    if usage.calls:
        execute(
            "UPDATE runs SET input=input+:input, output=output+:output, cached=cached+:cached, calls=calls+:calls,"
            " model=CASE :model WHEN '' THEN model ELSE :model END WHERE id=:run",
            {**asdict(usage), "model": model, "run": run},
        )


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ended."""

    state: str  # done, waiting, stopped, failed
    asks: tuple[Ask, ...] = ()
    title: str = ""
    clean: bool = True  # the checkpoint holds nothing unfinished


def finish_run(execute: Execute, job: ClaimedRun, ending: RunEnding, now: float) -> bool:
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
        raise LeaseLost(job.conversation)
    execute("UPDATE inbox SET state=1 WHERE run=:run AND state=0", {"run": job.run})
    execute(
        "UPDATE runs SET state=:state, finished=:now WHERE id=:run",
        {"state": ending.state, "now": now, "run": job.run},
    )
    execute("DELETE FROM ledger WHERE conversation=:key", {"key": job.conversation})
    more = conversations.refresh_pending(execute, job.conversation)
    release_conversation(execute, job.conversation, job.fence)
    return more


def suspend_run(execute: Execute, job: ClaimedRun) -> None:
    """The service stops: the run stays as it is, and this try does not count."""
    execute("UPDATE runs SET attempt=attempt-1 WHERE id=:run", {"run": job.run})
    execute("UPDATE conversations SET state='dirty' WHERE key=:key AND state='idle'", {"key": job.conversation})
    release_conversation(execute, job.conversation, job.fence)


def release_conversation(execute: Execute, key: str, fence: int) -> None:
    """Let the conversation go."""
    execute("UPDATE conversations SET owner=NULL WHERE key=:key AND fence=:fence", {"key": key, "fence": fence})


def release_all(execute: Execute) -> None:
    """The lock on data_dir says that we are alone: whatever a dead process held is free at once."""
    execute(
        "UPDATE conversations SET owner=NULL,"
        " state=CASE state WHEN 'idle' THEN 'dirty' ELSE state END WHERE owner IS NOT NULL",
        {},
    )
    execute("UPDATE outbox SET state=0 WHERE state=1", {})
