"""Questions: what a conversation waits for. Each is answered once.

Give numbers by which people answer what waits for them, and none again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

import orjson

from agent.blocks import Approve, Ask
from agent.messages import Thread
from agent.stored_json import Damaged, build_dataclass, raise_damaged
from bot.database.database import Execute, Row
from bot.database.rows import insert_row, read_rows
from bot.database.states import QuestionKind, QuestionState

MAX_LOOKED_AT = 1000  # open questions of a platform, for one list


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question. `number` is its number in the reply of `run`, 0 where it was asked alone."""

    conversation: str
    id: str
    run: int
    number: int
    kind: str
    text: str
    options: tuple[str, ...]
    free_text: int
    who: str  # ids of the people who may answer, separated by spaces; "": everybody who may talk here
    state: str
    asked: float
    until: float | None
    answer: str
    answer_key: str  # of the message that answered
    grant_tool: str = ""  # what an approval may allow for the future
    grant_subject: str = ""
    call: str = ""  # that needs approval
    approvers: str = ""  # names of the roles that approve, one a line; "": see `who`
    barred: str = ""  # who may not approve
    asked_in: str = ""  # the other chat that is asked
    answered_by: str = ""
    answered_at: float | None = None

    @property
    def subject(self) -> str:
        """What names this very question for a hand-over: with another call, or asked otherwise, it is another one."""
        parts = (self.conversation, self.id, self.text, self.call)
        return sha256("".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass")).hexdigest()

    def accept(self, text: str) -> str | None:
        """Return the answer that `text` gives; None when the question does not accept it."""
        question = Ask(self.id, self.text, self.options)
        return text if self.free_text or not self.options else question.match_option(text)


def unresolved_questions(execute: Execute, conversation: str) -> list[QuestionRow]:
    """Return the questions that are open, or answered while no turn has resumed with the answer. Raises Damaged."""
    sql = (
        "SELECT * FROM questions WHERE conversation=:conversation"
        f" AND state IN ('{QuestionState.OPEN}', '{QuestionState.ANSWERED}') ORDER BY run, number"
    )
    rows = execute(sql, {"conversation": conversation})
    return [_load_question(row) for row in rows]


def questions_of_run(execute: Execute, conversation: str, run: int) -> list[QuestionRow]:
    """Return what a run asked, in any state. Raises Damaged."""
    sql = "SELECT * FROM questions WHERE conversation=:conversation AND run=:run ORDER BY number"
    return [*map(_load_question, execute(sql, {"conversation": conversation, "run": run}))]


def find_question(execute: Execute, conversation: str, id: str) -> QuestionRow | None:
    """Return a question of a conversation in any state. Raises Damaged."""
    sql = "SELECT * FROM questions WHERE conversation=:conversation AND id=:id"
    rows = execute(sql, {"conversation": conversation, "id": id})
    return _load_question(rows[0]) if rows else None


def _load_question(row: Row) -> QuestionRow:
    with raise_damaged():
        return build_dataclass(QuestionRow, {**dict(row), "options": tuple(orjson.loads(row["options"]))})


def store_question(
    execute: Execute,
    ask: Ask | Approve,
    conversation: str,
    *,
    run: int,
    number: int,
    answerers: Mapping[str, str],
    now: float,
) -> None:
    """Store a question as open, also one that was stored before. `answerers` are the columns of who may answer."""
    approve = ask if isinstance(ask, Approve) else None
    shown = ask.to_question()
    values = {
        "conversation": conversation,
        "id": ask.id,
        "run": run,
        "number": number,
        "kind": QuestionKind.APPROVE if approve else QuestionKind.ASK,
        "text": ask.question,
        "options": orjson.dumps(shown.options).decode(),
        "free_text": int(shown.free_text),
        "call": approve.call if approve else "",
        "call_hash": approve.call_hash if approve else "",
        "grant_tool": approve.grant.tool if approve and approve.grant else "",
        "grant_subject": approve.grant.subject if approve and approve.grant else "",
        **answerers,
        "state": QuestionState.OPEN,
        "asked": now,
        "until": (ask.until or now + ask.hours * 3600) if ask.hours else None,
        "answer": "",
        "answered_by": "",
        "answer_key": "",
        "answered_at": None,
    }
    insert_row(execute, "questions", "conversation, id", values, update=[*values])


def record_answer(execute: Execute, question: QuestionRow, answer: str, *, by: str, key: str, now: float) -> bool:
    """Record the answer to an open question. Returns whether it was still open: each is answered once."""
    rows = execute(
        f"UPDATE questions SET state='{QuestionState.ANSWERED}', answer=:answer, answered_by=:by, answer_key=:key,"
        f" answered_at=:now WHERE conversation=:conversation AND id=:id AND state='{QuestionState.OPEN}'"
        " RETURNING id",
        {"answer": answer, "by": by, "key": key, "now": now, "conversation": question.conversation, "id": question.id},
    )
    return bool(rows)


def reopen_question(execute: Execute, question: QuestionRow) -> None:
    """Take back an answer that no turn has resumed with."""
    execute(
        f"UPDATE questions SET state='{QuestionState.OPEN}', answer='', answered_by='', answer_key='', answered_at=NULL"
        f" WHERE conversation=:conversation AND id=:id AND state='{QuestionState.ANSWERED}'",
        {"conversation": question.conversation, "id": question.id},
    )


def conversation_of_asked(execute: Execute, id: str, chat: str) -> str:
    """Return the conversation of a question that was asked in another chat, too; "" for none."""
    sql = "SELECT conversation FROM questions WHERE asked_in<>'' AND asked_in=:chat AND id=:id LIMIT 1"
    rows = execute(sql, {"id": id, "chat": chat})
    return str(rows[0]["conversation"]) if rows else ""


def conversation_of_open(execute: Execute, id: str, chat: str) -> str:
    """Return the conversation in this chat, in any of its threads, that waits for the question; "" for none."""
    return _conversation_of(execute, id, chat, is_open=True)


def is_over(execute: Execute, id: str, chat: str) -> bool:
    """Return whether a question was asked in this chat, in any of its threads, and takes no answer any more."""
    return bool(_conversation_of(execute, id, chat, is_open=False))


def _conversation_of(execute: Execute, id: str, chat: str, *, is_open: bool) -> str:
    sql = "SELECT c.key, c.thread, q.state FROM questions q JOIN conversations c ON c.key=q.conversation WHERE q.id=:id"
    for row in execute(sql, {"id": id}):
        if (row["state"] == QuestionState.OPEN) is is_open and str(Thread.parse(row["thread"]).without_topic) == chat:
            return str(row["key"])
    return ""


def open_questions_at(execute: Execute, thread: Thread) -> list[QuestionRow]:
    """Return the open questions of all conversations that post at an address. Raises Damaged."""
    sql = (
        "SELECT q.conversation FROM questions q JOIN conversations c ON c.key=q.conversation"
        f" WHERE q.state='{QuestionState.OPEN}' AND c.thread=:thread GROUP BY q.conversation ORDER BY min(q.asked)"
    )
    keys = [str(row["conversation"]) for row in execute(sql, {"thread": str(thread)})]
    return [each for key in keys for each in unresolved_questions(execute, key) if each.state == QuestionState.OPEN]


def open_approvals_at(execute: Execute, thread: Thread) -> list[QuestionRow]:
    """Return the open approvals that are shown at an address, the oldest first. Raises Damaged."""
    sql = (
        "SELECT q.* FROM questions q JOIN conversations c ON c.key=q.conversation"
        f" WHERE q.state='{QuestionState.OPEN}' AND q.kind='{QuestionKind.APPROVE}'"
        " AND (c.thread=:thread OR q.asked_in=:thread) ORDER BY q.asked"
    )
    return [_load_question(row) for row in execute(sql, {"thread": str(thread)})]


def open_questions_for(execute: Execute, channel: str, person: str) -> list[QuestionRow]:
    """Return the oldest open questions of a platform that a person may be asked: whether they are, `may_answer` says.

    One that is damaged is left out: its own conversation reports it.
    """
    sql = f"""SELECT q.* FROM questions q JOIN conversations c ON c.key=q.conversation
        WHERE q.state='{QuestionState.OPEN}' AND c.thread>=:channel || '/' AND c.thread<:channel || '0'
        AND (q.who='' OR ' ' || q.who || ' ' LIKE '% ' || :person || ' %') ORDER BY q.asked LIMIT {MAX_LOOKED_AT}"""
    found = []
    for row in execute(sql, {"channel": channel, "person": person}):
        with suppress(Damaged):
            found.append(_load_question(row))
    return found


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits, without its words: where it was asked, for whose work, and who may answer."""

    id: str
    kind: str
    conversation: str
    thread: str
    title: str
    requester: str
    approvers: str
    asked_in: str
    asked: float
    until: float | None


def list_open(execute: Execute, limit: int) -> list[OpenQuestion]:
    """Return open questions of everybody, the oldest first."""
    sql = (
        "SELECT q.id, q.kind, q.conversation, c.thread, c.title, coalesce(r.requester, '') AS requester,"
        " q.approvers, q.asked_in, q.asked, q.until"
        " FROM questions q JOIN conversations c ON c.key=q.conversation LEFT JOIN runs r ON r.id=q.run"
        f" WHERE q.state='{QuestionState.OPEN}' ORDER BY q.asked LIMIT :limit"
    )
    return read_rows(execute, OpenQuestion, sql, limit=limit)


def close_questions(execute: Execute, conversation: str, id: str | None = None) -> None:
    """Close one question of a conversation, or all."""
    sql = f"UPDATE questions SET state='{QuestionState.CLOSED}' WHERE conversation=:key"
    sql = sql if id is None else f"{sql} AND id=:id"
    execute(sql, {"key": conversation, "id": id})


def conversations_with_expired_questions(execute: Execute, now: float) -> list[str]:
    """Return the conversations in which a question is open for too long."""
    sql = f"SELECT conversation FROM questions WHERE until<=:now AND state='{QuestionState.OPEN}'"
    return sorted({str(row["conversation"]) for row in execute(sql, {"now": now})})


def number_of(execute: Execute, subject: str, now: float) -> int:
    """Return the number of what has this digest, a new one if it has none."""
    [row] = insert_row(execute, "waiting_numbers", "subject", {"subject": subject, "listed": now}, update=("listed",))
    return int(row["number"])
