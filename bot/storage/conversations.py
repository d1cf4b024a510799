"""Conversations: the current one of each address, what is pending in it, and its claim."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from agent.messages import Thread
from bot.database.database import Execute, Row
from bot.database.dialect import EXTRA, FOR_SHARE, FOR_UPDATE, SKIP_LOCKED, AdvisoryLock, lock_until_commit
from bot.database.replicas import DEAD_OWNER, HOST, LIVES_ELSEWHERE
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import OPEN_RUN, ConversationState, InboxState, OutboxState, QuestionState
from bot.storage.inbox import KEPT, OPEN
from bot.storage.runs import IS_SUSPECT

# What is ready later than the longest legal wait was stored before the clock was set back: it waits no longer.
_READY_NOW = "pending>0 AND owner IS NULL AND (ready<=:now OR ready>:latest)"
_MAY_CLAIM = f"NOT ({LIVES_ELSEWHERE}) AND NOT ({IS_SUSPECT})"
_CLAIMABLE = f"{_READY_NOW} AND {_MAY_CLAIM}"
_READY = "CAST(ready AS DOUBLE PRECISION)"  # a number, also where the row is damaged
# Everybody with unclaimed work, by steps from person to person in the index, however much one of them has.
_NEXT_PERSON = "SELECT min(person) FROM conversations WHERE pending>0 AND owner IS NULL"
_PEOPLE_WHO_WAIT = (
    f"WITH RECURSIVE people(person) AS (SELECT ({_NEXT_PERSON}) UNION ALL"
    f" SELECT ({_NEXT_PERSON} AND person>people.person) FROM people WHERE people.person IS NOT NULL)"
    " SELECT person, (SELECT count(*) FROM conversations WHERE owner IS NOT NULL AND person=people.person) AS working,"
    f" (SELECT {_READY} FROM conversations WHERE person=people.person AND {_CLAIMABLE} ORDER BY ready LIMIT 1) AS since"
    " FROM people WHERE person IS NOT NULL"
)
_OF_PERSON = (
    f"SELECT key, {_READY} AS since FROM conversations WHERE person=:person AND {_CLAIMABLE}"
    " ORDER BY ready LIMIT :limit"
)
# What is kept while a question is open does not delay the answer.
_UNKEPT = (
    f"{OPEN} AND (error<>'{KEPT}' OR NOT EXISTS"
    f" (SELECT 1 FROM questions q WHERE q.conversation=:key AND q.state='{QuestionState.OPEN}'))"
)
# The first open row decides, for rows never overtake each other. The continuation of a task comes last: while a
# question is open it waits, and the answer must not wait with it.
_FIRST_READY = (
    f"(SELECT ready FROM inbox WHERE conversation=:key AND {_UNKEPT}"
    " ORDER BY CASE WHEN key LIKE 'task:%' THEN 1 ELSE 0 END, id LIMIT 1)"
)
_WHAT_PENDS = (
    f"pending=(SELECT count(*) FROM inbox WHERE conversation=:key AND {_UNKEPT}), ready={_FIRST_READY},"
    f" person=coalesce((SELECT author FROM inbox WHERE conversation=:key AND {_UNKEPT} ORDER BY id LIMIT 1), person)"
)
# Before what pends is counted: what its holder has stored is then seen, and whoever stores more counts after it.
_LOCK = f"{EXTRA}SELECT 1 FROM conversations WHERE key=:key{FOR_UPDATE}"
_OWN = f"owner=:owner, host={HOST}, fence=fence+1"
_LOCK_QUEUE = lock_until_commit(AdvisoryLock.QUEUE)
_INTERRUPT = (
    "UPDATE conversations SET owner=NULL,"
    f" state=CASE state WHEN '{ConversationState.IDLE}' THEN '{ConversationState.DIRTY}' ELSE state END"
)


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation. `fence` is the number of its latest claim."""

    key: str
    thread: str
    title: str
    model: str
    effort: str
    agent: str
    state: str
    fence: int
    created: float
    used: float
    pending: int = 0  # messages that a turn must still answer


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A conversation whose messages wait for a turn from the unix time `ready` on. `person` is `CHANNEL:ID`."""

    key: str
    thread: str
    title: str
    person: str
    pending: int
    ready: float


def find_current(execute: Execute, thread: Thread) -> str:
    """Return the key of the conversation that this address is in; "" if there is none."""
    rows = execute("SELECT conversation FROM addresses WHERE thread=:thread", {"thread": str(thread)})
    return str(rows[0]["conversation"] or "") if rows else ""


def current_conversation(execute: Execute, thread: Thread, now: float) -> str:
    """Return the key of the conversation that this address is in; begin one if there is none."""
    return find_current(execute, thread) or begin_conversation(execute, thread, now)


def has_open_work(execute: Execute, thread: Thread) -> bool:
    """Return whether something that arrived at this address is not answered, or not delivered, yet."""
    sql = (
        "SELECT EXISTS (SELECT 1 FROM conversations c JOIN inbox i ON i.conversation=c.key"
        f" AND i.state={InboxState.NEW} WHERE c.thread=:thread) OR EXISTS (SELECT 1 FROM conversations c"
        f" JOIN runs r ON r.conversation=c.key AND r.{OPEN_RUN} WHERE c.thread=:thread) OR EXISTS (SELECT 1 FROM outbox"
        f" WHERE state IN ({OutboxState.NEW}, {OutboxState.CLAIMED}) AND thread=:thread) AS open"
    )
    return bool(execute(sql, {"thread": str(thread)})[0]["open"])


def has_conversation(execute: Execute, thread: Thread) -> bool:
    """Return whether there is a conversation at this address."""
    return bool(execute("SELECT 1 FROM addresses WHERE thread=:thread", {"thread": str(thread)}))


def list_threads(execute: Execute, beginning: str = "") -> list[str]:
    """Return the addresses that have conversations and begin like this."""
    sql = "SELECT DISTINCT thread FROM conversations WHERE thread>=:beginning AND thread<=:beginning || '~'"
    return [str(row["thread"]) for row in execute(sql, {"beginning": beginning})]


def latest_of_chat(execute: Execute, chat: Thread, before: str, limit: int) -> list[ConversationRow]:
    """Return the current conversations of a chat's threads, the latest first, that follow the cursor `USED~KEY`."""
    used, _mark, key = before.partition("~")
    sql = (
        "SELECT c.* FROM addresses a JOIN conversations c ON c.key=a.conversation WHERE a.thread>=:first AND"
        " a.thread<:first || '~' AND (:key='' OR c.used<:used OR (c.used=:used AND c.key<:key))"
        " ORDER BY c.used DESC, c.key DESC LIMIT :limit"
    )
    first = str(chat.without_topic)
    bounds = {"first": first, "used": _as_number(used), "key": key, "limit": limit}
    return read_rows(execute, ConversationRow, sql, **bounds)


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def begin_conversation(execute: Execute, thread: Thread, now: float) -> str:
    """Begin a new conversation at this address. The old one keeps its history and files."""
    address = str(thread)
    rows = execute("SELECT count FROM addresses WHERE thread=:thread", {"thread": address})
    count = int(rows[0]["count"]) + 1 if rows else 1
    key = f"{address}#{count}"
    place = {"thread": address, "conversation": key, "count": count}
    insert_row(execute, "addresses", "thread", place, update=("conversation", "count"))
    insert_row(execute, "conversations", "key", {"key": key, "thread": address, "created": now, "used": now})
    return key


def place_conversation(execute: Execute, key: str, thread: Thread, title: str, now: float) -> None:
    """Let a conversation of no address post at this one; begin it if there is none."""
    values = {"key": key, "thread": str(thread), "title": title, "created": now, "used": now}
    insert_row(execute, "conversations", "key", values, update=("thread",))


def is_first_conversation(key: str) -> bool:
    """Return whether this is the first conversation at its address: `/new` was not used."""
    return key.endswith("#1")


def find_conversation(execute: Execute, key: str) -> ConversationRow | None:
    """Return a conversation."""
    return read_row(execute, ConversationRow, "SELECT * FROM conversations WHERE key=:key", key=key)


def set_title(execute: Execute, key: str, title: str) -> bool:
    """Record the title of a conversation that has none. Returns whether it had none."""
    sql = "UPDATE conversations SET title=:title WHERE key=:key AND title='' RETURNING key"
    return bool(execute(sql, {"key": key, "title": title}))


def replace_title(execute: Execute, thread: Thread, title: str) -> None:
    """Record the title that a person gave a thread, for its current conversation."""
    sql = "UPDATE conversations SET title=:title WHERE key=(SELECT conversation FROM addresses WHERE thread=:thread)"
    execute(sql, {"thread": str(thread), "title": title})


def choose_model(execute: Execute, key: str, model: str, effort: str) -> None:
    """Record which model answers from the next turn on, with which reasoning effort; "" means the configured one."""
    sql = "UPDATE conversations SET model=:model, effort=:effort WHERE key=:key"
    execute(sql, {"key": key, "model": model, "effort": effort})


# ------------------------------------------------------------ what is pending


def lock_conversation(execute: Execute, key: str) -> None:
    """Have other transactions wait that change the conversation: what is read after this is what they left."""
    execute(_LOCK, {"key": key})


def refresh_pending(execute: Execute, key: str) -> bool:
    """Set when the conversation may be claimed: when its first open row is ready. Returns whether any row is open."""
    lock_conversation(execute, key)
    rows = execute(f"UPDATE conversations SET {_WHAT_PENDS} WHERE key=:key RETURNING pending", {"key": key})
    return bool(rows and rows[0]["pending"])


def has_pending(execute: Execute) -> bool:
    """Return whether any conversation has open rows."""
    return bool(execute("SELECT 1 FROM conversations WHERE pending>0 LIMIT 1", {}))


def earliest_ready(execute: Execute) -> float | None:
    """Return when the next unclaimed conversation is ready."""
    rows = execute("SELECT min(ready) AS ready FROM conversations WHERE pending>0 AND owner IS NULL", {})
    ready: float | None = rows[0]["ready"]
    return ready


def earliest_claimable(execute: Execute, owner: str) -> float | None:
    """Return when the next unclaimed conversation is ready that the process `owner` may claim."""
    sql = f"SELECT min(ready) AS ready FROM conversations WHERE pending>0 AND owner IS NULL AND {_MAY_CLAIM}"
    ready: float | None = execute(sql, {"owner": owner})[0]["ready"]
    return ready


def list_unclaimed(execute: Execute, after: tuple[float, str], limit: int) -> list[WaitingRow]:
    """Return the conversations that wait for a turn, the first ready one first, behind `after` (ready, key)."""
    sql = (
        "SELECT key, thread, title, person, pending, ready FROM conversations WHERE pending>0 AND owner IS NULL"
        " AND (ready>:ready OR (ready=:ready AND key>:key)) ORDER BY ready, key LIMIT :limit"
    )
    return read_rows(execute, WaitingRow, sql, ready=after[0], key=after[1], limit=limit)


def count_unclaimed(execute: Execute) -> int:
    """Count the conversations that wait for a turn."""
    return int(execute("SELECT count(*) AS n FROM conversations WHERE pending>0 AND owner IS NULL", {})[0]["n"])


# ------------------------------------------------------------ claims


def claimable_conversations(execute: Execute, owner: str, now: float, latest: float, limit: int) -> list[str]:
    """Return the keys of unclaimed conversations that are ready, and may be claimed by the process `owner`.

    They come in turn by person, who has the fewest running first, and the oldest of each person first.
    `latest` is the latest time (unix seconds) for which a message may legally wait.
    """
    bounds = {"owner": owner, "now": now, "latest": latest}
    people = [
        (int(row["working"]), float(row["since"]), str(row["person"]))
        for row in (execute(_PEOPLE_WHO_WAIT, bounds) if limit else ())
        if row["since"] is not None
    ]
    heapq.heapify(people)
    waiting: dict[str, list[Row]] = {}
    keys: list[str] = []
    while people and len(keys) < limit:
        working, _, person = heapq.heappop(people)
        if person not in waiting:
            waiting[person] = [*reversed(execute(_OF_PERSON, {**bounds, "person": person, "limit": limit - len(keys)}))]
        if not waiting[person]:  # another process has claimed them meanwhile
            continue
        keys.append(str(waiting[person].pop()["key"]))
        if rest := waiting[person]:
            heapq.heappush(people, (working + 1, float(rest[-1]["since"]), person))
    return keys


def queueable_conversations(execute: Execute, now: float, latest: float, limit: int) -> list[ConversationRow]:
    """Return the claimable conversations that have neither a run nor an open question.

    Other processes leave them out until this transaction ends, and one at a time looks.
    """
    execute(_LOCK_QUEUE, {})
    sql = (
        f"SELECT * FROM conversations WHERE {_READY_NOW} AND state<>'{ConversationState.WAITING}'"
        f" AND NOT EXISTS (SELECT 1 FROM runs WHERE conversation=conversations.key AND {OPEN_RUN})"
        f" ORDER BY ready LIMIT :limit{SKIP_LOCKED}"
    )
    return read_rows(execute, ConversationRow, sql, now=now, latest=latest, limit=limit)


def count_others(execute: Execute, owner: str) -> int:
    """Return in how many conversations other processes work."""
    sql = "SELECT count(*) AS n FROM conversations WHERE owner IS NOT NULL AND owner<>:owner"
    return int(execute(sql, {"owner": owner})[0]["n"])


def claimed_by_others(execute: Execute, owner: str) -> set[str]:
    """Return the conversations that other processes work in."""
    rows = execute("SELECT key FROM conversations WHERE owner IS NOT NULL AND owner<>:owner", {"owner": owner})
    return {str(row["key"]) for row in rows}


def claim_conversation(execute: Execute, key: str, owner: str) -> ConversationRow | None:
    """Claim a conversation under a new fencing number. None: another process has claimed it meanwhile."""
    sql = f"UPDATE conversations SET {_OWN} WHERE key=:key AND owner IS NULL RETURNING *"
    return read_row(execute, ConversationRow, sql, owner=owner, key=key)


def claim_at_once(execute: Execute, key: str, owner: str, now: float, latest: float) -> ConversationRow | None:
    """Claim a conversation whose open rows have changed, instead of `refresh_pending`, which wakes who would claim it.

    None, without a change: it is claimed, not ready, or waits for answers.
    """
    sql = (
        f"UPDATE conversations SET {_WHAT_PENDS}, {_OWN}"
        f" WHERE key=:key AND owner IS NULL AND state<>'{ConversationState.WAITING}' AND {_MAY_CLAIM}"
        f" AND ({_FIRST_READY}<=:now OR {_FIRST_READY}>:latest) RETURNING *"
    )
    execute(_LOCK, {"key": key})
    return read_row(execute, ConversationRow, sql, key=key, owner=owner, now=now, latest=latest)


def hold_claim(execute: Execute, key: str, fence: int, owner: str) -> bool:
    """Return whether a process has this claim, and keep it so until the transaction ends."""
    sql = f"SELECT 1 FROM conversations WHERE key=:key AND fence=:fence AND owner=:owner{FOR_SHARE}"
    return bool(execute(sql, {"key": key, "fence": fence, "owner": owner}))


def is_claimed(execute: Execute, key: str) -> bool:
    """Return whether a turn works in the conversation."""
    return bool(execute("SELECT 1 FROM conversations WHERE key=:key AND owner IS NOT NULL", {"key": key}))


def end_claim(execute: Execute, key: str, fence: int, state: ConversationState, *, title: str, now: float) -> bool:
    """Record the end of a turn, what is pending now, and release the conversation, which wakes who claims the rest.

    False: the claim was lost, and nothing is recorded.
    """
    execute(_LOCK, {"key": key})
    return bool(
        execute(
            f"UPDATE conversations SET {_WHAT_PENDS}, owner=NULL, state=:state, used=:now,"
            " title=CASE title WHEN '' THEN :title ELSE title END WHERE key=:key AND fence=:fence RETURNING key",
            {"key": key, "fence": fence, "state": state, "title": title, "now": now},
        )
    )


def interrupt_claim(execute: Execute, key: str, fence: int) -> None:
    """Release a conversation in the middle of a turn."""
    execute(f"{_INTERRUPT} WHERE key=:key AND fence=:fence", {"key": key, "fence": fence})


def release_claim(execute: Execute, key: str, fence: int) -> None:
    """Release a conversation without a turn."""
    execute("UPDATE conversations SET owner=NULL WHERE key=:key AND fence=:fence", {"key": key, "fence": fence})


def release_stale_claims(execute: Execute) -> None:
    """Release what dead processes held.

    A power failure can undo a claim, but not the checkpoint of its turn: so a conversation that still has messages may
    hold unfinished work, too.
    """
    for held in (DEAD_OWNER, "pending>0 AND owner IS NULL"):
        execute(f"{_INTERRUPT} WHERE {held}", {})


def mark_dirty(execute: Execute, key: str) -> None:
    """Note that the checkpoint may hold unfinished work: the next turn repairs it."""
    execute(f"UPDATE conversations SET state='{ConversationState.DIRTY}' WHERE key=:key", {"key": key})


def stop_waiting(execute: Execute, key: str) -> bool:
    """Let a conversation wait for no answers any more. False: it does not wait, or a turn works in it."""
    sql = (
        f"UPDATE conversations SET state='{ConversationState.DIRTY}'"
        f" WHERE key=:key AND state='{ConversationState.WAITING}' AND owner IS NULL RETURNING key"
    )
    return bool(execute(sql, {"key": key}))


def workspaces_of(execute: Execute, channel: str) -> list[str]:
    """Return the workspaces of a channel in which there are conversations, by steps in the index."""
    found, after, sql = [], f"{channel}/", "SELECT min(thread) AS thread FROM conversations WHERE thread>=:after"
    while (next_thread := execute(sql, {"after": after})[0]["thread"]) and next_thread.startswith(f"{channel}/"):
        quoted = str(next_thread).split("/")[1]
        found.append(Thread.parse(next_thread).workspace)
        after = f"{channel}/{quoted}0"  # "0" follows "/"
    return found


def list_latest(execute: Execute, before: tuple[float, str], limit: int) -> list[ConversationRow]:
    """Return conversations used before one, the latest first."""
    used, key = before
    sql = (
        "SELECT * FROM conversations WHERE used<=:used AND (used<:used OR key<:key) ORDER BY used DESC, key DESC"
        " LIMIT :limit"
    )
    return read_rows(execute, ConversationRow, sql, used=used, key=key, limit=limit)
