"""Runs: one row for each unit of work, with its state and attempts.

Stamps of the files in outputs/ that were sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agent.messages import Author, Message, Thread
from agent.stored_json import build_dataclass
from bot.database.database import Execute
from bot.database.replicas import HOST, LIVES_ELSEWHERE, LIVING
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import OPEN_RUN, RunState

_NEXT_FIRE = (
    "(SELECT y.id FROM runs y WHERE y.conversation=i.conversation AND y.id>i.run AND EXISTS"
    " (SELECT 1 FROM inbox j WHERE j.run=y.id AND j.key LIKE 'sched:%') ORDER BY y.id LIMIT 1)"
)
SUSPICIOUS_INTERRUPTIONS = 2  # after so many, a run is tried alone
IS_SUSPECT = (  # of a conversation, where processes share the database
    f"{HOST}<>'' AND EXISTS (SELECT 1 FROM runs r WHERE r.conversation=conversations.key AND r.{OPEN_RUN}"
    f" AND r.attempt>={SUSPICIOUS_INTERRUPTIONS})"
)
_IN_PROGRESS = f"{OPEN_RUN} AND r.state='{RunState.RUNNING}'"  # the first is for the index
RUNS_OF_REQUEST = (
    "SELECT id FROM runs WHERE conversation=:conversation AND id<=:run AND id>coalesce((SELECT max(id) FROM runs"
    f" WHERE conversation=:conversation AND id<:run AND state<>'{RunState.WAITING}'), 0)"
)
"""The runs of the request of this run: each but it ended with a question."""
LATEST_RUN = (
    "(SELECT max(x.id) FROM runs x WHERE x.conversation=i.conversation AND x.id>=i.run"
    f" AND (x.id<{_NEXT_FIRE} OR {_NEXT_FIRE} IS NULL))"
)
"""The latest run of the work that the message `i` began: each answer to a question makes another run. All fires of a
schedule share a conversation, and the next one ends the work of this one."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run. Its id is that of the first inbox row that it answers."""

    id: int
    conversation: str
    requester: str
    reply_to: str
    state: str
    attempt: int
    stop_by: str
    started: float
    language: str  # that the platform reported of the requester
    deaths_alone: int = 0  # of the process, while no other run was in progress
    finished: float | None = None
    people: str = ""  # ids of those whose messages the run answers, separated by spaces; "": the requester
    mode: str = ""  # of the request: plan, goal

    @property
    def author(self) -> Author:
        """The requester, without a name."""
        return Author(self.requester, "", language=self.language)


def create_run(
    execute: Execute,
    run: int,
    conversation: str,
    first: Message,
    state: RunState,
    now: float,
    people: Iterable[str] = (),
) -> RunRow:
    """Create the run that answers `first` and what came with it, whose authors are `people`."""
    values = {
        "id": run,
        "conversation": conversation,
        "requester": first.author.id,
        "language": first.author.language,
        "reply_to": first.id,
        "state": state,
        "attempt": int(state is RunState.RUNNING),  # a queued run was not tried yet
        "started": now,
        "people": " ".join(dict.fromkeys(people)),
        "mode": first.mode,
    }
    return build_dataclass(RunRow, dict(insert_row(execute, "runs", "id", values, update=("state",))[0]))


def resume_run(execute: Execute, conversation: str) -> RunRow | None:
    """Begin the next attempt of the open run of a conversation."""
    sql = (
        f"UPDATE runs SET state='{RunState.RUNNING}', attempt=attempt+1 WHERE id="
        f"(SELECT id FROM runs WHERE conversation=:conversation AND {OPEN_RUN} ORDER BY id LIMIT 1) RETURNING *"
    )
    return read_row(execute, RunRow, sql, conversation=conversation)


def count_deaths(execute: Execute) -> None:
    """Count the death of a process for the run that was in progress alone there. Of several, any may be the cause.

    Called before the claims of dead processes are released.
    """
    execute(
        "UPDATE runs SET deaths_alone=deaths_alone+1 WHERE id IN (SELECT min(r.id) FROM runs r"
        f" JOIN conversations c ON c.key=r.conversation WHERE r.{_IN_PROGRESS} AND c.owner NOT IN {LIVING}"
        " GROUP BY c.owner HAVING count(*)=1)",
        {},
    )


def next_suspect(execute: Execute, owner: str) -> str | None:
    """Return the conversation of the unclaimed run that the process `owner` is to try alone.

    It was interrupted so many times. The run that was least often the only one in progress at a death comes first.
    """
    rows = execute(
        "SELECT r.conversation FROM runs r JOIN conversations c ON c.key=r.conversation"
        f" WHERE r.{OPEN_RUN} AND c.owner IS NULL AND r.attempt>=:interruptions AND NOT ({LIVES_ELSEWHERE})"
        " ORDER BY r.deaths_alone, r.attempt, r.id LIMIT 1",
        {"interruptions": SUSPICIOUS_INTERRUPTIONS, "owner": owner},
    )
    return str(rows[0]["conversation"]) if rows else None


def count_suspects(execute: Execute) -> int:
    """Return how many runs are to be tried alone."""
    sql = (
        "SELECT count(*) AS n FROM runs r JOIN conversations c ON c.key=r.conversation"
        f" WHERE r.{OPEN_RUN} AND c.owner IS NULL AND r.attempt>=:interruptions"
    )
    return int(execute(sql, {"interruptions": SUSPICIOUS_INTERRUPTIONS})[0]["n"])


def uncount_attempt(execute: Execute, run: int) -> None:
    """Take back an attempt that a graceful shutdown interrupted."""
    execute("UPDATE runs SET attempt=attempt-1 WHERE id=:run", {"run": run})


def finish_run(execute: Execute, run: int, state: RunState, now: float) -> None:
    """Record how a run ended."""
    sql = "UPDATE runs SET state=:state, finished=:now WHERE id=:run"
    execute(sql, {"run": run, "state": state, "now": now})


def fail_open_runs(execute: Execute, conversation: str, now: float) -> None:
    """End the runs of a conversation that cannot be read."""
    execute(
        f"UPDATE runs SET state='{RunState.FAILED}', finished=:now WHERE conversation=:conversation AND {OPEN_RUN}",
        {"conversation": conversation, "now": now},
    )


def find_run(execute: Execute, run: int) -> RunRow | None:
    """Return a run."""
    return read_row(execute, RunRow, "SELECT * FROM runs WHERE id=:run", run=run)


def add_people(execute: Execute, run: int, people: Iterable[str]) -> None:
    """Record that a run answers messages of these people, too."""
    if (row := find_run(execute, run)) and (new := {*people} - {*people_of(row)}):
        joined = " ".join([*people_of(row), *sorted(new)])
        execute("UPDATE runs SET people=:people WHERE id=:run", {"run": run, "people": joined})


def remove_people(execute: Execute, run: int, people: Collection[str]) -> None:
    """Record that a run does not answer the messages of these people after all."""
    if people and (row := find_run(execute, run)):
        kept = " ".join(each for each in people_of(row) if each not in people)
        execute("UPDATE runs SET people=:people WHERE id=:run", {"run": run, "people": kept})


def people_of(run: RunRow) -> list[str]:
    """Return the ids of the people whose messages a run answers."""
    return run.people.split() or [run.requester]


def is_alone(execute: Execute, run: int, person: str) -> bool:
    """Return whether a run answers this person only. What is one person's alone moves only then."""
    row = find_run(execute, run)
    return row is not None and {*people_of(row)} == {person}


def request_stop(execute: Execute, run: int, by: str) -> None:
    """Record that a run is to stop, so that a restart does not continue it."""
    execute("UPDATE runs SET stop_by=:by WHERE id=:run", {"run": run, "by": by})


def stopped_runs(execute: Execute, owner: str) -> list[RunRow]:
    """Return the open runs of a process that are to stop."""
    sql = (
        "SELECT * FROM runs WHERE conversation IN (SELECT key FROM conversations WHERE owner=:owner)"
        f" AND {OPEN_RUN} AND stop_by<>''"
    )
    return read_rows(execute, RunRow, sql, owner=owner)


def runs_elsewhere(execute: Execute, thread: Thread, owner: str) -> list[int]:
    """Return the runs at an address that are in progress at other processes than `owner`."""
    sql = (
        "SELECT id FROM runs WHERE conversation IN (SELECT key FROM conversations WHERE thread=:thread"
        f" AND owner IS NOT NULL AND owner<>:owner) AND state='{RunState.RUNNING}'"
    )
    return [int(row["id"]) for row in execute(sql, {"thread": f"{thread}", "owner": owner})]


def stoppable_runs(execute: Execute, thread: Thread) -> list[RunRow]:
    """Return the open runs of an address, also of its older conversations, that are not stopped yet."""
    sql = (
        "SELECT * FROM runs WHERE conversation IN (SELECT key FROM conversations WHERE thread=:thread)"
        f" AND {OPEN_RUN} AND stop_by=''"
    )
    return read_rows(execute, RunRow, sql, thread=str(thread))


def threads_of_chat(execute: Execute, thread: Thread) -> list[tuple[str, bool]]:
    """Return title and whether a run is open, of every conversation in a thread of this chat."""
    place = str(thread.without_topic)
    sql = (
        "SELECT title, EXISTS (SELECT 1 FROM runs WHERE conversation=conversations.key"
        f" AND {OPEN_RUN} AND stop_by='') AS busy FROM conversations"
        " WHERE thread>:place AND thread<:place || '~' ORDER BY key"
    )
    return [(row["title"], bool(row["busy"])) for row in execute(sql, {"place": place})]


def open_runs(execute: Execute, conversation: str) -> list[RunRow]:
    """Return the runs of a conversation that have not ended."""
    sql = f"SELECT * FROM runs WHERE conversation=:conversation AND {OPEN_RUN} ORDER BY id"
    return read_rows(execute, RunRow, sql, conversation=conversation)


def is_open(execute: Execute, run: int) -> bool:
    """Return whether a run has not ended yet."""
    return bool(execute(f"SELECT 1 FROM runs WHERE id=:run AND {OPEN_RUN}", {"run": run}))


def latest_run(execute: Execute, conversation: str) -> RunRow | None:
    """Return the latest run of a conversation."""
    sql = "SELECT * FROM runs WHERE conversation=:conversation ORDER BY id DESC LIMIT 1"
    return read_row(execute, RunRow, sql, conversation=conversation)


def latest_runs(execute: Execute, conversation: str, limit: int) -> list[RunRow]:
    """Return the latest runs of a conversation, the latest first."""
    sql = "SELECT * FROM runs WHERE conversation=:conversation ORDER BY id DESC LIMIT :limit"
    return read_rows(execute, RunRow, sql, conversation=conversation, limit=limit)


def count_runs(execute: Execute, conversation: str) -> int:
    """Count the runs of a conversation."""
    rows = execute("SELECT count(*) AS n FROM runs WHERE conversation=:conversation", {"conversation": conversation})
    return int(rows[0]["n"])


def requester_of(execute: Execute, run: int) -> str:
    """Return the platform id of the requester of a run."""
    return str(execute("SELECT requester FROM runs WHERE id=:run", {"run": run})[0]["requester"])


def known_stamps(execute: Execute, conversation: str) -> dict[str, str]:
    """Return path → stamp of what was sent of this conversation's outputs."""
    sql = "SELECT path, stamp FROM outputs WHERE conversation=:conversation"
    return {row["path"]: row["stamp"] for row in execute(sql, {"conversation": conversation})}


def replace_stamps(execute: Execute, conversation: str, stamps: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Store the stamps in place of those known before."""
    for path, stamp in stamps.items() - before.items():
        values = {"conversation": conversation, "path": path, "stamp": stamp}
        insert_row(execute, "outputs", "conversation, path", values, update=("stamp",))
    for path in before.keys() - stamps.keys():
        sql = "DELETE FROM outputs WHERE conversation=:conversation AND path=:path"
        execute(sql, {"conversation": conversation, "path": path})
