"""The tool calls that rules judged, each with what rules compare: other rules can be tried on them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from agent.core.context import JudgedCall
from agent.permissions.rules import Subject, ToolUse, Verdict
from bot.database.database import Execute
from bot.database.rows import insert_row, read_rows
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
