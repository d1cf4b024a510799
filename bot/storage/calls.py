"""Store tool calls: those that rules judged, those with effects, and those that people allowed for the future."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from agent.core.context import JudgedCall, LedgerEntry
from agent.messages import Author, Thread
from agent.permissions.rules import Grant, Subject, ToolUse, Verdict
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows
from bot.storage import runs
from bot.storage.usage import Payer

MAX_SUBJECT_CHARS = 2000
_LINES = ("paths",)  # kinds of subjects of which a text has several, one a line


@dataclass(frozen=True, slots=True)
class CallRow:
    """A judged call. `person` is the requester with the channel, `people` the ids of all whose messages its run
    answers, separated by spaces; `subject` is cut to MAX_SUBJECT_CHARS, and `real` has its resolved paths, one a line.
    """

    run: int
    conversation: str
    call: str
    thread: str
    person: str
    people: str
    tool: str
    argument: str
    kind: str
    subject: str
    real: str
    fallback: Verdict
    verdict: str
    at: float
    id: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning of the subject is known."""
        return len(self.subject) >= MAX_SUBJECT_CHARS

    @property
    def use(self) -> ToolUse:
        """The call as rules see it."""
        if not self.argument:
            return ToolUse(self.tool, _parse_arguments(self.subject), default=self.fallback)
        kind: Any = self.kind
        value = self.subject.split("\n") if self.kind in _LINES else self.subject
        real = tuple(self.real.split("\n")) if self.real and not self.is_cut else ()
        return ToolUse(self.tool, {self.argument: value}, Subject(self.argument, kind), self.fallback, real)


def add_call(execute: Execute, payer: Payer, call: JudgedCall) -> None:
    """Store a call. One that was judged before, in an earlier attempt or before its question, stays as it is."""
    use, run = call.use, runs.find_run(execute, payer.run)
    row = CallRow(
        run=payer.run,
        conversation=payer.conversation,
        call=call.key,
        thread=str(payer.thread),
        person=payer.person,
        people=" ".join(runs.people_of(run) if run else [payer.requester]),
        tool=use.name,
        argument=use.subject.argument if use.subject else "",
        kind=use.subject.kind if use.subject else "",
        subject=_subject_text(use)[:MAX_SUBJECT_CHARS],
        real="\n".join(use.real)[:MAX_SUBJECT_CHARS],
        fallback=use.default,
        verdict=call.verdict,
        at=call.at,
    )
    values = {name: value for name, value in asdict(row).items() if name != "id"}
    insert_row(execute, "calls", "conversation, call", values)


def read_calls(execute: Execute, since: float, after: int, limit: int) -> list[CallRow]:
    """Return the calls since this unix time, from the first id over `after` on."""
    sql = "SELECT * FROM calls WHERE at>=:since AND id>:after ORDER BY id LIMIT :limit"
    return read_rows(execute, CallRow, sql, since=since, after=after, limit=limit)


def _subject_text(use: ToolUse) -> str:
    """Return what rules compare: the subject, or all arguments of a tool that declares none."""
    if not use.subject:
        return json.dumps(use.args, ensure_ascii=False, sort_keys=True, default=str)
    return "\n".join(use.paths()) or str(use.args.get(use.subject.argument, ""))


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # it was cut
        found = None
    return found if isinstance(found, dict) else {"": text}


_KEY = "conversation, call"


def begin_call(execute: Execute, conversation: str, call: str) -> LedgerEntry | None:
    """Record that a call starts and return None, or return what is known of its earlier try."""
    new = insert_row(execute, "ledger", _KEY, {"conversation": conversation, "call": call})
    return None if new else find_call(execute, conversation, call)


def find_call(execute: Execute, conversation: str, call: str) -> LedgerEntry | None:
    """Return what is known of a call."""
    sql = "SELECT result FROM ledger WHERE conversation=:conversation AND call=:call"
    return read_row(execute, LedgerEntry, sql, conversation=conversation, call=call)


def record_result(execute: Execute, conversation: str, call: str, result: str) -> None:
    """Record the result of a call."""
    values = {"conversation": conversation, "call": call, "result": result}
    insert_row(execute, "ledger", _KEY, values, update=("result",))


def forget_calls(execute: Execute, conversation: str) -> None:
    """Delete the calls of a conversation, whose turn has ended."""
    execute("DELETE FROM ledger WHERE conversation=:conversation", {"conversation": conversation})


EVERYWHERE = ""  # in place of a conversation


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant, and the person who gave it."""

    id: int
    conversation: str
    tool: str
    subject: str
    channel: str
    person: str
    name: str
    place: str  # where it was given
    given: float = 0.0

    @property
    def thread(self) -> Thread:
        return Thread.parse(self.place) if self.place else Thread(self.channel, "", "")


def store_grant(execute: Execute, conversation: str, grant: Grant, place: Thread, by: Author, now: float) -> None:
    """Store a grant for a conversation or EVERYWHERE. One that is given again belongs to its new giver."""
    giver = {"channel": place.channel, "person": by.id, "name": by.name, "given": now, "place": str(place)}
    values = {"conversation": conversation, "tool": grant.tool, "subject": grant.subject, **giver}
    insert_row(execute, "permission_grants", "conversation, tool, subject", values, update=[*giver])


def matching_grants(execute: Execute, conversation: str, grant: Grant) -> list[GrantRow]:
    """Return the grants of the conversation and of operators that cover this call."""
    sql = (
        "SELECT * FROM permission_grants WHERE conversation IN (:conversation, '') AND tool=:tool AND subject=:subject"
        " ORDER BY id"
    )
    return read_rows(execute, GrantRow, sql, conversation=conversation, tool=grant.tool, subject=grant.subject)


def list_grants(execute: Execute, conversation: str) -> list[GrantRow]:
    """Return the grants of the conversation, then those of operators."""
    sql = "SELECT * FROM permission_grants WHERE conversation IN (:conversation, '') ORDER BY conversation='', id"
    return read_rows(execute, GrantRow, sql, conversation=conversation)


def revoke_grant(execute: Execute, id: int) -> None:
    """Delete a grant."""
    execute("DELETE FROM permission_grants WHERE id=:id", {"id": id})
