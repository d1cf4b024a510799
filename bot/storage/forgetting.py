"""Delete what is stored of a person, in small steps that can be repeated.

Of a message, the key stays until retention deletes it: an event that the platform offers again is still known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from agent.messages import Message, Thread
from agent.stored_json import Damaged
from bot.database import audit
from bot.database.database import Execute
from bot.database.dialect import ROW_ID
from bot.database.rows import MAX_ROW, read_rows
from bot.database.states import (
    OPEN_RUN,
    OPEN_TASK,
    ConversationState,
    InboxState,
    OutboxKind,
    OutboxState,
    QuestionState,
    TaskState,
)
from bot.database.web_people import WEB, web_id
from bot.storage import conversations, exposures, outbox, quoted, retention, runs, schedules
from bot.storage import questions as stored_questions
from bot.storage.blanked import COLUMNS, StillCounted, blank_messages
from bot.storage.inbox import OPEN, InboxRow
from bot.storage.people import OF_PERSON
from bot.storage.runs import RunRow
from bot.storage.uses import FORGOTTEN

CLAIM = "forgetting"  # the owner of a conversation while it is cleaned
FORGOTTEN_RUN = "-"  # the conversation of usage whose person is forgotten
BATCH_ROWS = 20  # in one transaction, which others wait for
_RUN_OF_KEY = re.compile(r"(?:ask|run):(\d+)")

_CONVERSATIONS = """WITH RECURSIVE found(key) AS (SELECT min(conversation) FROM inbox WHERE author=:author UNION ALL
    SELECT (SELECT min(conversation) FROM inbox WHERE author=:author AND conversation>found.key) FROM found
    WHERE found.key IS NOT NULL) SELECT key FROM found WHERE key IS NOT NULL"""  # one seek each, not one a message
_OWN_ENTRIES = f"SELECT {ROW_ID} FROM transcript WHERE conversation=:key AND author=:person LIMIT :limit"
_ANSWERS = (
    f"SELECT t.{ROW_ID} FROM runs r JOIN transcript t ON t.conversation=r.conversation AND t.author='' AND t.run=r.id"
    " WHERE r.conversation=:key AND r.requester=:person LIMIT :limit"
)
_WHOLE = ("transcript", "calls", "outputs", "questions", "quoted")  # tables of which a private conversation loses all
_BEFORE_LAST = (
    f"SELECT {COLUMNS} FROM inbox WHERE author=:author AND conversation=:key"
    " AND id<(SELECT max(id) FROM inbox WHERE author=:author AND conversation=:key) LIMIT :limit"
)
_OF_CONVERSATION = f"SELECT {COLUMNS} FROM inbox WHERE author=:author AND conversation=:key"
_LOOSE_ROWS = f"SELECT {COLUMNS} FROM inbox WHERE author=:author LIMIT :limit"


_COUNTS = {
    "messages": "SELECT count(*) AS n FROM inbox WHERE author=:author",
    "conversations": "SELECT count(DISTINCT conversation) AS n FROM inbox WHERE author=:author AND conversation<>''",
    "memories": "SELECT count(*) AS n FROM memory WHERE owner=:person AND account>=:channel || '/'"
    " AND account<:channel || '0'",
    "schedules": "SELECT count(*) AS n FROM schedules WHERE channel=:channel AND owner=:person",
    "tasks": "SELECT count(*) AS n FROM tasks WHERE channel=:channel AND person=:person",
    "roles": f"SELECT count(*) AS n FROM person_roles WHERE {OF_PERSON}",
    "calls": "SELECT count(*) AS n FROM usage WHERE person=:author",
}


@dataclass(frozen=True, slots=True)
class PersonKey:
    """Who is forgotten: an id on a channel."""

    channel: str
    id: str

    @property
    def key(self) -> str:
        """The person as in the inbox, the usage and the audit."""
        return audit.person_name(self.channel, self.id)

    @property
    def on_web(self) -> PersonKey:
        """The same person as their keys of the API act."""
        return PersonKey(WEB, web_id(self.channel, self.id))


@dataclass(frozen=True, slots=True)
class Traces:
    """Where a person left something: direct chats, conversations there, and conversations with others."""

    chats: tuple[Thread, ...] = ()
    private: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    schedules: tuple[int, ...] = ()
    tasks: tuple[int, ...] = ()
    threads: frozenset[str] = field(default_factory=frozenset)  # of all these conversations


def count_traces(execute: Execute, person: PersonKey) -> dict[str, int]:
    """Return how much is stored of a person, by kind."""
    values = {"author": person.key, "channel": person.channel, "person": person.id}
    return {name: int(execute(sql, values)[0]["n"]) for name, sql in _COUNTS.items()}


def find_traces(execute: Execute, person: PersonKey, chats: Collection[Thread] = ()) -> Traces:
    """Return where a person left something. `chats` are direct chats that are known already."""
    values = {"author": person.key, "channel": person.channel, "person": person.id}
    found = [str(row["key"]) for row in execute(_CONVERSATIONS, values)]
    direct = {chat.without_topic for chat in chats}
    direct |= {chat for key in found if (chat := _direct_chat(execute, person, key))}
    rows = execute("SELECT thread FROM people WHERE channel=:channel AND person=:person AND thread<>''", values)
    direct |= {Thread.parse(row["thread"]).without_topic for row in rows}
    own = execute("SELECT id FROM schedules WHERE channel=:channel AND owner=:person", values)
    plans = tuple(int(row["id"]) for row in own)
    rows = execute("SELECT id FROM tasks WHERE channel=:channel AND person=:person", values)
    tasks = tuple(int(row["id"]) for row in rows)
    found += [key for number in plans for key in schedules.own_conversations(execute, number)]
    found += [*(f"task:{number}" for number in tasks), *quoted.quoting_conversations(execute, person.key)]
    for chat in direct:
        sql = "SELECT key FROM conversations WHERE thread>=:first AND thread<:first || '~'"
        found += [str(row["key"]) for row in execute(sql, {"first": str(chat)})]
    everywhere = {key: row for key in {*found} if key and (row := conversations.find_conversation(execute, key))}
    private = {
        key
        for key, row in everywhere.items()
        if Thread.parse(row.thread).without_topic in direct and not _others_wrote(execute, person, key)
    }
    return Traces(
        chats=tuple(sorted(direct, key=str)),
        private=tuple(sorted(private)),
        shared=tuple(sorted(everywhere.keys() - private)),
        schedules=plans,
        tasks=tasks,
        threads=frozenset(str(row.thread) for row in everywhere.values()),
    )


def _others_wrote(execute: Execute, person: PersonKey, conversation: str) -> bool:
    """Return whether anybody else wrote in a conversation, as far as it is stored."""
    sql = (
        "SELECT EXISTS (SELECT 1 FROM transcript WHERE conversation=:key AND author>'' AND author<:person)"
        " OR EXISTS (SELECT 1 FROM transcript WHERE conversation=:key AND author>:person) OR EXISTS"
        f" (SELECT 1 FROM inbox WHERE conversation=:key AND {OPEN} AND author<>:author) AS found"
    )
    values = {"key": conversation, "person": person.id, "author": person.key}
    return bool(execute(sql, values)[0]["found"])


def _direct_chat(execute: Execute, person: PersonKey, conversation: str) -> Thread | None:
    """Return the chat of a conversation if it is a direct chat of this person with the bot."""
    for limit in (1, BATCH_ROWS):  # the first one can be damaged
        for message in readable(rows_of_author(execute, person, conversation, limit=limit)):
            return message.thread.without_topic if message.private else None
    return None


def rows_of_author(
    execute: Execute, person: PersonKey, conversation: str, after: int = 0, limit: int = MAX_ROW
) -> list[InboxRow]:
    """Return what a person wrote in a conversation, after a row of the inbox."""
    sql = "SELECT * FROM inbox WHERE author=:author AND conversation=:key AND id>:after ORDER BY id LIMIT :limit"
    return read_rows(execute, InboxRow, sql, author=person.key, key=conversation, after=after, limit=limit)


def readable(rows: Iterable[InboxRow]) -> Iterator[Message]:
    """Yield the messages of the rows that can be read."""
    for row in rows:
        with suppress(Damaged):
            yield row.message


def messages_of(execute: Execute, person: PersonKey, conversation: str) -> list[Message]:
    """Return the messages of a person in a conversation that can be read."""
    return [*readable(rows_of_author(execute, person, conversation))]


def attached_files(execute: Execute, person: PersonKey, key: str, after: int) -> tuple[set[str], int | None]:
    """Return the names of files that a person sent in some rows of a conversation, and the last row or None."""
    rows = rows_of_author(execute, person, key, after, BATCH_ROWS)
    names = {file.name for message in readable(rows) for file in message.attachments}
    return names, rows[-1].id if len(rows) == BATCH_ROWS else None


def stop_runs(execute: Execute, person: PersonKey) -> list[int]:
    """Have the open runs of a person stop, and withdraw what waits; return the runs."""
    sql = (
        "SELECT r.id FROM runs r JOIN conversations c ON c.key=r.conversation"
        f" WHERE r.{OPEN_RUN} AND r.requester=:person AND c.thread>=:first AND c.thread<:first || '~'"
    )
    found = [int(row["id"]) for row in execute(sql, {"person": person.id, "first": f"{person.channel}/"})]
    for run in found:
        runs.request_stop(execute, run, person.id)
    withdrawn = execute(
        f"UPDATE inbox SET state={InboxState.WITHDRAWN} WHERE author=:author AND state={InboxState.NEW}"
        " AND run IS NULL AND kind IN ('chat', 'click') RETURNING conversation",
        {"author": person.key},
    )
    for key in {str(row["conversation"]) for row in withdrawn}:
        conversations.refresh_pending(execute, key)
    return found


def stop_tasks(execute: Execute, person: PersonKey) -> None:
    """End the background tasks of a person; that has their commands killed."""
    sql = f"UPDATE tasks SET state='{TaskState.FAILED}' WHERE channel=:channel AND person=:person AND {OPEN_TASK}"
    execute(sql, {"channel": person.channel, "person": person.id})


def claim_conversation(execute: Execute, key: str) -> bool:
    """Claim a conversation, so that no turn begins in it. False: a turn works in it."""
    sql = (
        "UPDATE conversations SET owner=:owner, fence=fence+1 WHERE key=:key AND (owner IS NULL OR owner=:owner)"
        " RETURNING key"
    )
    return bool(execute(sql, {"key": key, "owner": CLAIM}))


def release_conversation(execute: Execute, key: str) -> None:
    """Release a conversation that could not be cleaned."""
    execute("UPDATE conversations SET owner=NULL WHERE key=:key AND owner=:owner", {"key": key, "owner": CLAIM})


def forget_some(
    execute: Execute, person: PersonKey, key: str, counted: StillCounted, *, private: bool, limit: int = BATCH_ROWS
) -> int:
    """Delete some of what a claimed conversation has of a person; return how many rows of it.

    One of their messages stays, by which a later round finds the conversation again.
    """
    values = {"key": key, "person": person.id, "author": person.key, "limit": limit}
    if deleted := _delete_entries(execute, values, private=private):
        return deleted
    change = "DELETE FROM runs" if private else "UPDATE runs SET requester='', people='', language='', stop_by=''"
    sql = f"SELECT id FROM runs WHERE conversation=:key AND {'TRUE' if private else 'requester=:person'} LIMIT :limit"
    found = [int(row["id"]) for row in execute(sql, values)]
    for run in found:
        execute("DELETE FROM feedback WHERE run=:run", {"run": run})
        execute("DELETE FROM questions WHERE conversation=:key AND run=:run", {"key": key, "run": run})
        execute(f"{change} WHERE id=:run", {"run": run})
    blanked = blank_messages(execute, _BEFORE_LAST, values, counted)
    return len(found) + blanked + quoted.blank_quotes(execute, person.key, key, limit)


def _delete_entries(execute: Execute, values: dict[str, object], *, private: bool) -> int:
    """Delete some of what a conversation tells about a person's work; return how many rows."""
    chosen = [("transcript", _OWN_ENTRIES), ("transcript", _ANSWERS)]
    of_key = "SELECT {row} FROM {table} WHERE conversation=:key LIMIT :limit"
    tables = ("ledger", "run_steps", *_WHOLE) if private else ("ledger", "run_steps")
    chosen += [(table, of_key.format(row=ROW_ID, table=table)) for table in tables]
    for table, rows in chosen:
        if deleted := execute(f"DELETE FROM {table} WHERE {ROW_ID} IN ({rows}) RETURNING 1", values):
            return len(deleted)
    return 0


def forget_calls(execute: Execute, person: PersonKey, key: str, after: str) -> str | None:
    """Delete the calls of a person's requests among some of a conversation; return the last one, None at the end."""
    sql = "SELECT id, call, person, people FROM calls WHERE conversation=:key AND call>:after ORDER BY call LIMIT 500"
    rows = execute(sql, {"key": key, "after": after})
    for row in rows:
        if row["person"] == person.key or person.id in str(row["people"]).split(" "):
            execute("DELETE FROM calls WHERE id=:id", {"id": row["id"]})
    return str(rows[-1]["call"]) if len(rows) == 500 else None


def others_who_wait(execute: Execute, person: PersonKey, key: str) -> list[RunRow]:
    """Return the runs of others in a conversation that wait for an answer."""
    sql = (
        "SELECT * FROM runs WHERE id IN (SELECT run FROM questions WHERE conversation=:key"
        f" AND state IN ('{QuestionState.OPEN}', '{QuestionState.ANSWERED}')) AND requester NOT IN ('', :person)"
    )
    return read_rows(execute, RunRow, sql, key=key, person=person.id)


def forget_in_conversation(
    execute: Execute, person: PersonKey, key: str, counted: StillCounted, *, private: bool
) -> None:
    """Delete the rest of what a claimed conversation has of a person, and release it. A private one is deleted whole.

    Its checkpoint and its files are deleted already.
    """
    forget_some(execute, person, key, counted, private=private)
    values = {"key": key, "person": person.id, "channel": person.channel, "author": person.key}
    stored_questions.close_questions(execute, key)
    execute(
        "UPDATE questions SET answer='', answered_by='' WHERE conversation=:key AND answered_by=:person"
        f" AND state='{QuestionState.CLOSED}'",
        values,
    )
    execute("DELETE FROM permission_grants WHERE conversation=:key AND channel=:channel AND person=:person", values)
    execute("DELETE FROM ledger WHERE conversation=:key", values)
    execute("DELETE FROM run_steps WHERE conversation=:key", values)
    exposures.forget_words(execute, key)
    execute("DELETE FROM jobs WHERE key='title:' || :key", values)
    blank_messages(execute, _OF_CONVERSATION, values, counted)
    sql = f"UPDATE conversations SET owner=NULL, title='', state='{ConversationState.IDLE}' WHERE key=:key"
    execute(sql, values)
    conversations.refresh_pending(execute, key)
    if private:
        retention.delete_conversation(execute, key)


def forget_deliveries(
    execute: Execute, person: PersonKey, traces: Traces, after: int, limit: int = BATCH_ROWS
) -> tuple[int | None, list[str]]:
    """Blank what was delivered in these conversations, from a row on. What still waits in a direct chat is dropped.

    Return the last row looked at, None at the end, and the folders of the spool that are not delivered any more.
    """
    sql = "SELECT id, key, kind, thread, person, state, payload FROM outbox WHERE id>:after ORDER BY id LIMIT :limit"
    copies = list[str]()
    rows = execute(sql, {"after": after, "limit": limit})
    about = outbox.about_stranger(person.channel, person.id)
    direct = tuple(str(chat) for chat in traces.chats)
    prefixes = tuple(f"sched:{number}:" for number in traces.schedules)
    reports = {f"task:{number}" for number in traces.tasks}
    for row in rows:
        of_run = _RUN_OF_KEY.match(row["key"])
        is_own = row["thread"].startswith(direct) if direct else False
        is_own = is_own or row["person"] == person.id or row["key"] in reports
        is_own = is_own or row["key"].startswith(prefixes or ("\0",))
        is_own = is_own or row["key"].startswith(about) or _answers_forgotten(execute, person, row["key"])
        is_own = is_own or bool(of_run and _is_forgotten_run(execute, int(of_run[1])))
        is_done = row["state"] in (OutboxState.SENT, OutboxState.DROPPED)
        if is_own or (is_done and row["thread"] in traces.threads):
            state = row["state"] if is_done else OutboxState.DROPPED
            if row["kind"] == OutboxKind.FILE and row["state"] != OutboxState.SENT:
                copies += [f"row-{row['id']}", *outbox.folder_names(row["payload"])]
            blank = "UPDATE outbox SET payload='', person='', state=:state, error='' WHERE id=:id"
            execute(blank, {"id": row["id"], "state": state})
    return int(rows[-1]["id"]) if len(rows) == limit else None, copies


def _answers_forgotten(execute: Execute, person: PersonKey, key: str) -> bool:
    """Return whether a row, by its key, answers a message of this person."""
    _kind, _colon, message = key.partition(":")
    sql = f"SELECT 1 FROM inbox WHERE key IN (:key, :whole) AND (author=:author OR error='{FORGOTTEN}')"
    return bool(execute(sql, {"key": message, "whole": message.rpartition(":")[0], "author": person.key}))


def _is_forgotten_run(execute: Execute, run: int) -> bool:
    rows = execute("SELECT requester FROM runs WHERE id=:run", {"run": run})
    return not rows or not rows[0]["requester"]


def forget_loose(execute: Execute, person: PersonKey, counted: StillCounted, *, limit: int = BATCH_ROWS) -> int:
    """Delete some of what belongs to no conversation, such as commands; return how many rows."""
    return blank_messages(execute, _LOOSE_ROWS, {"author": person.key, "limit": limit}, counted)
