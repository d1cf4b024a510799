"""Received events: each stored once under its key, in the order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from agent.messages import Kind, Message, Thread, Unreadable
from agent.stored_json import Damaged
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import InboxState, RunState
from bot.storage.quoted import record_quotes
from bot.storage.runs import RUNS_OF_REQUEST
from bot.storage.uses import FORGOTTEN, forgotten_name

IGNORED_KIND, UNREADABLE_KIND = "passed", "unreadable"  # of rows that are no message for the bot
MAX_NEWS = 500  # rows that are shown to turns at once
LIVE_ANSWER = "answers a question of the running turn"  # the error of a row that did so
LOOKED_FOR_NAME = 5  # latest messages of a conversation
KEPT = "kept"  # the error of a row that is read once no question is open
OPEN = f"state={InboxState.NEW} AND kind IN ('{Kind.CHAT}', '{Kind.CLICK}')"  # a turn must still answer them


@dataclass(frozen=True)
class InboxRow:
    """A stored event. `run` is the run that took it; `steered` marks an event that was taken while its run worked."""

    id: int
    key: str
    conversation: str
    kind: str
    payload: bytes
    state: int
    ready: float
    received: float
    bundle: str
    run: int | None
    steered: int
    error: str

    @cached_property  # a claim looks at it six times
    def message(self) -> Message:
        """Raises Damaged."""
        return Message.load(self.payload)


def store_message(
    execute: Execute, message: Message, conversation: str, *, ready: float, received: float, bundle: str = ""
) -> int | None:
    """Store a message and return its row id, None when its key is stored already."""
    stored = _insert_event(
        execute,
        key=message.key,
        conversation=conversation,
        kind=message.kind,
        author=_author_key(message),
        payload=message.dump(),
        ready=ready,
        received=received,
        bundle=bundle,
    )
    if stored is not None:
        record_quotes(execute, message, conversation)
    return stored


def store_ignored(execute: Execute, key: str, reason: str, now: float) -> None:
    """Remember that an event was not for the bot."""
    _insert_event(
        execute, key=key, kind=IGNORED_KIND, payload=b"", state=InboxState.WITHDRAWN, received=now, error=reason
    )


def store_unreadable(execute: Execute, event: Unreadable, now: float) -> int | None:
    """Store an event that could not be parsed as a dead letter."""
    return _insert_event(
        execute,
        key=event.key,
        kind=UNREADABLE_KIND,
        payload=event.raw,
        state=InboxState.DEAD,
        received=now,
        error=event.error,
    )


def _insert_event(execute: Execute, **columns: Any) -> int | None:
    rows = insert_row(execute, "inbox", "key", {"conversation": "", "author": "", "ready": 0.0} | columns)
    return rows[0]["id"] if rows else None


def _author_key(message: Message) -> str:
    return f"{message.thread.channel}:{message.author.id}"


def has_written(execute: Execute, author: str) -> bool:
    """Return whether anything is stored that a person (`CHANNEL:ID`) wrote."""
    return bool(execute("SELECT 1 FROM inbox WHERE author=:author LIMIT 1", {"author": author}))


def find_ignored(execute: Execute, key: str) -> InboxRow | None:
    """Return the row of an event that was not for the bot."""
    return read_row(execute, InboxRow, f"SELECT * FROM inbox WHERE key=:key AND kind='{IGNORED_KIND}'", key=key)


def find_message(execute: Execute, key: str) -> InboxRow | None:
    """Return the row of an event."""
    return read_row(execute, InboxRow, "SELECT * FROM inbox WHERE key=:key", key=key)


def latest(execute: Execute, limit: int) -> list[InboxRow]:
    """Return the latest events whose words are kept, the newest first."""
    return read_rows(
        execute, InboxRow, "SELECT * FROM inbox WHERE payload<>'' ORDER BY id DESC LIMIT :limit", limit=limit
    )


def first_key(execute: Execute, run: int) -> str:
    """Return the key of the first message of a run; "" where it has none."""
    rows = execute("SELECT key FROM inbox WHERE run=:run ORDER BY id LIMIT 1", {"run": run})
    return str(rows[0]["key"]) if rows else ""


def has_written_in(execute: Execute, chat: Thread, person: str) -> bool:
    """Return whether a person has written to the bot in a chat, in any of its topics, as far as that is still kept."""
    sql = """SELECT 1 FROM inbox i JOIN conversations c ON c.key=i.conversation
        WHERE i.author=:author AND c.thread>=:chat AND c.thread<=:chat || '~' LIMIT 1"""
    return bool(execute(sql, {"author": f"{chat.channel}:{person}", "chat": str(chat.without_topic)}))


def latest_name(execute: Execute, author: str) -> str:
    """Return the name under which a person (`CHANNEL:ID`) wrote last; "" where none is kept."""
    sql = "SELECT * FROM inbox WHERE author=:author AND payload<>'' ORDER BY received DESC LIMIT 1"
    row = read_row(execute, InboxRow, sql, author=author)
    with suppress(Damaged):
        return row.message.author.name if row else ""
    return ""


def is_shared(execute: Execute, conversation: str) -> bool:
    """Return whether the latest message of a conversation came in a shared chat; False where it cannot be read."""
    sql = "SELECT * FROM inbox WHERE conversation=:key ORDER BY id DESC LIMIT 1"
    row = read_row(execute, InboxRow, sql, key=conversation)
    with suppress(Damaged):
        return row is not None and not row.message.private
    return False


def is_direct(execute: Execute, conversation: str, author: str) -> bool:
    """Return whether a conversation is in the direct chat of this person (`CHANNEL:ID`).

    Where nothing of theirs can be read there, it counts as one.
    """
    sql = "SELECT * FROM inbox WHERE author=:author AND conversation=:key ORDER BY id DESC LIMIT 1"
    row = read_row(execute, InboxRow, sql, author=author, key=conversation)
    with suppress(Damaged):
        return row is None or row.message.private
    return True


def latest_of_thread(execute: Execute, thread: str, limit: int) -> list[InboxRow]:
    """Return the latest events of the conversations at an address, the newest first."""
    sql = (
        "SELECT i.* FROM inbox i JOIN conversations c ON c.key=i.conversation WHERE c.thread=:thread"
        " ORDER BY i.id DESC LIMIT :limit"
    )
    return read_rows(execute, InboxRow, sql, thread=thread, limit=limit)


def last_taken(execute: Execute, thread: str, before: str) -> float:
    """Return when the last chat message at an address that a turn took before the message with this key was written."""
    sql = (
        "SELECT i.received FROM inbox i JOIN conversations c ON c.key=i.conversation WHERE c.thread=:thread"
        f" AND i.kind='{Kind.CHAT}' AND i.run IS NOT NULL AND i.id<(SELECT id FROM inbox WHERE key=:key)"
        " ORDER BY i.id DESC LIMIT 1"
    )
    rows = execute(sql, {"thread": thread, "key": before})
    return float(rows[0]["received"]) if rows else 0.0


def find_editable(execute: Execute, key: str) -> InboxRow | None:
    """Return the message that its author may still change: no turn has begun with it."""
    sql = (
        "SELECT i.* FROM inbox i LEFT JOIN runs r ON r.id=i.run"
        f" WHERE i.key=:key AND i.state={InboxState.NEW} AND (i.run IS NULL OR r.state='{RunState.QUEUED}')"
    )
    return read_row(execute, InboxRow, sql, key=key)


def find_worked_on(execute: Execute, key: str) -> InboxRow | None:
    """Return the message that a running turn works on."""
    sql = (
        "SELECT i.* FROM inbox i JOIN runs r ON r.id=i.run"
        f" WHERE i.key=:key AND i.state={InboxState.NEW} AND r.state='{RunState.RUNNING}' AND r.stop_by=''"
    )
    return read_row(execute, InboxRow, sql, key=key)


def is_only_message(execute: Execute, row: InboxRow) -> bool:
    """Return whether its run has no other message."""
    sql = "SELECT 1 FROM inbox WHERE run=:run AND id<>:id LIMIT 1"
    return not execute(sql, {"run": row.run, "id": row.id})


def find_bundle(execute: Execute, thread: Thread, bundles: Sequence[str]) -> str:
    """Return which of two bundles waits for more pieces at this address, the later one first; "" for none."""
    album, paste = bundles
    rows = execute(
        "SELECT i.bundle FROM inbox i JOIN addresses a ON a.conversation=i.conversation"
        f" WHERE a.thread=:thread AND i.state={InboxState.NEW} AND i.bundle IN (:album, :paste)"
        " ORDER BY i.id DESC LIMIT 1",
        {"thread": str(thread), "album": album, "paste": paste},
    )
    return str(rows[0]["bundle"]) if rows else ""


def count_recent(execute: Execute, message: Message, since: float) -> int:
    """Count the chat messages of the message's author since this time."""
    rows = execute(
        "SELECT count(*) AS n FROM inbox WHERE author IN (:author, :forgotten) AND received>:since"
        f" AND (kind='{Kind.CHAT}' OR error='{FORGOTTEN}')",
        {"author": _author_key(message), "forgotten": forgotten_name(_author_key(message)), "since": since},
    )
    return int(rows[0]["n"])


def open_rows(execute: Execute, conversation: str) -> list[InboxRow]:
    """Return every row of the conversation that a turn must still answer."""
    sql = f"SELECT * FROM inbox WHERE conversation=:conversation AND {OPEN} ORDER BY id"
    return read_rows(execute, InboxRow, sql, conversation=conversation)


def pending_authors(execute: Execute, conversation: str) -> list[str]:
    """Return the ids of those whose words no run has taken yet."""
    sql = (
        "SELECT DISTINCT author FROM inbox WHERE conversation=:conversation AND run IS NULL"
        f" AND state={InboxState.NEW} AND kind='{Kind.CHAT}'"
    )
    return [str(row["author"]).partition(":")[2] for row in execute(sql, {"conversation": conversation})]


def pending_rows(execute: Execute, conversation: str, limit: int) -> list[InboxRow]:
    """Return the open rows that no run has taken."""
    sql = f"SELECT * FROM inbox WHERE conversation=:conversation AND run IS NULL AND {OPEN} ORDER BY id LIMIT :limit"
    return read_rows(execute, InboxRow, sql, conversation=conversation, limit=limit)


def untaken_rows(execute: Execute, owner: str) -> list[InboxRow]:
    """Return the open rows that no run has taken, of the conversations that a process works in."""
    sql = (
        "SELECT * FROM inbox WHERE conversation IN (SELECT key FROM conversations WHERE owner=:owner AND pending>0)"
        f" AND run IS NULL AND {OPEN} ORDER BY id LIMIT {MAX_NEWS}"
    )
    return read_rows(execute, InboxRow, sql, owner=owner)


def steering_rows(execute: Execute, conversation: str, run: int, limit: int) -> list[InboxRow]:
    """Return the chat messages that came while the run worked, also those that it has taken."""
    sql = (
        f"SELECT * FROM inbox WHERE conversation=:conversation AND state={InboxState.NEW} AND kind='{Kind.CHAT}'"
        " AND (run IS NULL OR (run=:run AND steered=1)) ORDER BY id LIMIT :limit"
    )
    return read_rows(execute, InboxRow, sql, conversation=conversation, run=run, limit=limit)


def rows_of_run(execute: Execute, run: int) -> list[InboxRow]:
    """Return every row that the run took."""
    return read_rows(execute, InboxRow, "SELECT * FROM inbox WHERE run=:run ORDER BY id", run=run)


def rows_of_request(execute: Execute, run: int, conversation: str) -> list[InboxRow]:
    """Return the words that began the request of a run: those of its later runs are answers."""
    sql = (
        f"SELECT * FROM inbox WHERE run=(SELECT min(id) FROM ({RUNS_OF_REQUEST}) AS each) AND kind='{Kind.CHAT}'"
        f" AND state<>{InboxState.DEAD} AND error<>:answer ORDER BY id"
    )
    return read_rows(execute, InboxRow, sql, run=run, conversation=conversation, answer=LIVE_ANSWER)


def name_of_chat(execute: Execute, conversation: str) -> str:
    """Return the title of the group of a conversation, as its latest messages say it; "" where none does."""
    sql = f"SELECT * FROM inbox WHERE conversation=:conversation ORDER BY id DESC LIMIT {LOOKED_FOR_NAME}"
    for row in read_rows(execute, InboxRow, sql, conversation=conversation):
        with suppress(Damaged):
            if name := row.message.chat_name:
                return name
    return ""


def pending_commands(execute: Execute, limit: int) -> list[InboxRow]:
    """Return the commands and presses that are not answered yet."""
    kinds = f"kind IN ('{Kind.COMMAND}', '{Kind.PRESS}')"
    sql = f"SELECT * FROM inbox WHERE state={InboxState.NEW} AND {kinds} ORDER BY id LIMIT :limit"
    return read_rows(execute, InboxRow, sql, limit=limit)


def take_command(execute: Execute, row: int) -> bool:
    """Mark a command as done before it runs. Returns whether it was still to be answered: each is answered once."""
    sql = f"UPDATE inbox SET state={InboxState.DONE}, error='' WHERE id=:id AND state={InboxState.NEW} RETURNING id"
    return bool(execute(sql, {"id": row}))


def take_row(execute: Execute, row: int, run: int, *, steered: bool = False) -> None:
    """Note which run takes the row."""
    sql = "UPDATE inbox SET run=:run, steered=:steered WHERE id=:id"
    execute(sql, {"id": row, "run": run, "steered": int(steered)})


def withdraw_conversation(execute: Execute, conversation: str) -> None:
    """Withdraw the messages of a conversation that no run has taken."""
    sql = f"UPDATE inbox SET state={InboxState.WITHDRAWN} WHERE conversation=:key AND run IS NULL AND {OPEN}"
    execute(sql, {"key": conversation})


def finish_rows(execute: Execute, run: int) -> None:
    """Mark what the run took as done."""
    sql = f"UPDATE inbox SET state={InboxState.DONE} WHERE run=:run AND state={InboxState.NEW}"
    execute(sql, {"run": run})


def latest_held(execute: Execute, conversation: str, reason: str) -> int | None:
    """Return the latest message of a conversation that was not read for this reason."""
    sql = "SELECT max(id) AS id FROM inbox WHERE conversation=:conversation AND error=:reason"
    return cast("int | None", execute(sql, {"conversation": conversation, "reason": reason})[0]["id"])


def find_row(execute: Execute, row: int) -> InboxRow | None:
    """Return a row by its number."""
    return read_row(execute, InboxRow, "SELECT * FROM inbox WHERE id=:id", id=row)


def move_row(execute: Execute, row: int, conversation: str) -> None:
    """Give a row that no run has taken to another conversation."""
    execute("UPDATE inbox SET conversation=:conversation WHERE id=:id", {"id": row, "conversation": conversation})


def release_row(execute: Execute, row: int, conversation: str, now: float) -> None:
    """Let a conversation read a row that was held."""
    sql = f"UPDATE inbox SET conversation=:conversation, state={InboxState.NEW}, error='', ready=:now WHERE id=:id"
    execute(sql, {"id": row, "conversation": conversation, "now": now})


def keep_row(execute: Execute, row: int) -> None:
    """Keep a row until no question is open: it answers none, and delays no answer."""
    set_state(execute, row, InboxState.NEW, KEPT)


def move_kept(execute: Execute, conversation: str, to: str) -> None:
    """Let another conversation read the rows that were kept."""
    sql = (
        "UPDATE inbox SET conversation=:to, error=''"
        f" WHERE conversation=:conversation AND {OPEN} AND run IS NULL AND error='{KEPT}'"
    )
    execute(sql, {"conversation": conversation, "to": to})


def set_state(execute: Execute, row: int, state: InboxState, error: str = "") -> None:
    """Set the state of one row, and why."""
    execute("UPDATE inbox SET state=:state, error=:error WHERE id=:id", {"id": row, "state": state, "error": error})


def delete_row(execute: Execute, row: int) -> None:
    """Delete a row, so that its event counts as new."""
    execute("DELETE FROM inbox WHERE id=:id", {"id": row})


def replace_message(execute: Execute, row: int, message: Message) -> None:
    """Store the edited message."""
    execute("UPDATE inbox SET payload=:payload WHERE id=:id", {"id": row, "payload": message.dump()})


def replace_text(execute: Execute, message: Message, text: str) -> None:
    """Store another text of a message, such as one without the secret that it brought."""
    payload = replace(message, text=text).dump()
    execute("UPDATE inbox SET payload=:payload WHERE key=:key", {"payload": payload, "key": message.key})


def delay_row(execute: Execute, row: int, ready: float) -> None:
    """Let a row wait until `ready`."""
    execute("UPDATE inbox SET ready=:ready WHERE id=:id", {"id": row, "ready": ready})


def delay_bundle(execute: Execute, conversation: str, bundle: str, ready: float) -> None:
    """Let every piece of a bundle wait until `ready`."""
    execute(
        f"UPDATE inbox SET ready=:ready WHERE conversation=:conversation AND bundle=:bundle AND state={InboxState.NEW}",
        {"conversation": conversation, "bundle": bundle, "ready": ready},
    )


def delay_all_bundles(execute: Execute, ready: float) -> set[str]:
    """Let every pending bundle wait until `ready`; return their conversations."""
    rows = execute(
        f"UPDATE inbox SET ready=:ready WHERE state={InboxState.NEW} AND coalesce(run, 0)=0 AND bundle<>''"
        " AND conversation IN (SELECT key FROM conversations WHERE pending>0)"  # by the index, not through all rows
        " RETURNING conversation",
        {"ready": ready},
    )
    return {str(row["conversation"]) for row in rows}


def withdraw_pending(execute: Execute, message: Message, *, everybody: bool) -> set[str]:
    """Withdraw the pending chat messages of the message's author, or of `everybody`, at its address.

    Returns the conversations that had any, the older ones of the address included.
    """
    rows = execute(
        f"UPDATE inbox SET state={InboxState.WITHDRAWN} WHERE state={InboxState.NEW} AND run IS NULL"
        f" AND kind='{Kind.CHAT}' AND (author=:author OR :everybody=1)"
        " AND conversation IN (SELECT key FROM conversations WHERE thread=:thread) RETURNING conversation",
        {"thread": str(message.thread), "author": _author_key(message), "everybody": int(everybody)},
    )
    return {str(row["conversation"]) for row in rows}
