"""Show one run as a tree with times, for `fawn trace`: made of what the database has, whether traces are on or off.

Read for an operator what a command is about to change, or why a message has no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from agent.spans import place_of_run
from agent.spending import SANDBOX
from bot.admin.message_search import find_messages
from bot.database.audit import AuditKind, find_aliases, find_names, read_newest
from bot.database.database import Database, Execute
from bot.database.identity import read_identity
from bot.database.states import EntryKind, OutboxState, RunState
from bot.journey.ignored import IgnoredEvent
from bot.rights.budgets import format_money
from bot.status.transcript_format import step_words
from bot.storage import conversations, inbox, people
from bot.storage.forgetting import PersonKey, count_traces
from bot.storage.operator_views import find_run_of, read_run_trace, run_numbers
from bot.storage.runs import find_run
from catalogue import N_, _

TRACE_CHARS = 32  # of a trace's id
SEARCHED_AT_ONCE = 2000  # runs, whose ids take some milliseconds
MAX_TEXT_CHARS = 70
SLACK_SECONDS = 0.05  # two clocks of one process
STATES = {
    OutboxState.NEW: N_("waits"),
    OutboxState.CLAIMED: N_("is being delivered"),
    OutboxState.SENT: N_("delivered"),
    OutboxState.DEAD: N_("given up: `fawn dead list`"),
    OutboxState.DROPPED: N_("dropped"),
}
ENDED = {
    RunState.QUEUED: N_("waits for its turn"),
    RunState.RUNNING: N_("is running"),
    RunState.DONE: N_("answered"),
    RunState.WAITING: N_("waits for an answer"),
    RunState.STOPPED: N_("stopped"),
    RunState.FAILED: N_("failed"),
}


@dataclass(slots=True)
class Node:
    """One line of the tree. `seconds` is None for a moment."""

    at: float
    seconds: float | None
    text: str
    inside: list[Node] = field(default_factory=list)

    def covers(self, other: Node) -> bool:
        """Return whether another one began and ended while this one worked."""
        begun = self.at - SLACK_SECONDS <= other.at
        ended = self.seconds is None or other.at + (other.seconds or 0.0) <= self.at + self.seconds + SLACK_SECONDS
        return begun and ended


async def look_up_trace(store: Database, what: str) -> dict[str, Any]:
    """Return a run by its number, the key of a message or the id of its trace, with `trace`; {} where there is none."""
    seed = await store.run(read_identity)
    is_trace = len(what) == TRACE_CHARS and all(each in "0123456789abcdef" for each in what)
    run = await (_find_by_trace(store, seed, what) if is_trace else store.run(partial(find_run_of, what=what)))
    found = await store.run(partial(read_run_trace, run=run)) if run else None
    return {**found, "trace": f"{place_of_run(seed, found['run']).trace:032x}"} if found else {}


async def _find_by_trace(store: Database, seed: str, trace: str) -> int | None:
    before, wanted = 2**62, int(trace, 16)
    while runs := await store.run(partial(run_numbers, before=before, limit=SEARCHED_AT_ONCE)):
        if found := [run for run in runs if place_of_run(seed, run).trace == wanted]:
            return found[0]
        before = runs[-1]
    return None


def render_trace(found: Mapping[str, Any]) -> str:
    """Return the tree with a head: when each part began after the first message, how long it took, and what it was."""
    origin = min((each["received"] for each in found["messages"]), default=found["started"])
    head = _(
        "run {run}: {state}, {seconds:.2f} s, attempt {attempt}",
        run=found["run"],
        state=_(ENDED.get(found["state"], found["state"])),
        seconds=max(0.0, (found["finished"] or time.time()) - origin),
        attempt=found["attempt"],
    )
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(origin))
    lines = [
        head,
        " ".join([when, *(f"{name}={found[name]}" for name in ("trace", "thread", "requester"))]),
        *(_line(node, origin, prefix) for node, prefix in _walk(_tree(found), "")),
    ]
    return "\n".join(lines)


def _tree(found: Mapping[str, Any]) -> list[Node]:
    """Return the nodes in the order of time: calls of a sub-agent are inside of the task that began them."""
    end = found["finished"] or time.time()
    turn = Node(found["started"], max(0.0, end - found["started"]), _("turn"))
    steps = [(row, node) for row in found["steps"] if (node := _step(row))]
    tree = {row["item"]: node for row, node in steps}
    for row, node in steps:
        tree.get(f"step:{row['parent']}", turn).inside.append(node)
    turn.inside += map(_question, found["questions"])
    for row in found["calls"]:
        call = _call(row) if row["kind"] != SANDBOX else Node(row["began"], row["seconds"], _("sandbox in use"))
        tasks = [node for step, node in steps if step["text"] == row["agent"] and node.covers(call)]
        min(tasks, key=lambda node: node.seconds or 0.0, default=turn).inside.append(call)
    for node in (turn, *turn.inside):
        node.inside.sort(key=lambda each: each.at)
    messages = [Node(each["received"], None, _("message {key}", key=each["key"])) for each in found["messages"]]
    return sorted([*messages, turn, *_deliveries(found)], key=lambda each: each.at)


def _call(row: Mapping[str, Any]) -> Node:
    cost = f", {format_money(row['cost'])}" if row["cost"] is not None else ""
    text = _(
        "model {model} ({agent}, {kind}): {input:,} tokens in, {cached:,} of them cached, {output:,} out{cost}",
        **{name: row[name] for name in ("model", "agent", "kind", "input", "cached", "output")},
        cost=cost,
    )
    return Node(row["began"], None if row["open"] else row["seconds"], text)


def _step(row: Mapping[str, Any]) -> Node | None:
    text = " ".join(step_words(row["text"], row["step_title"]).split())
    text = text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"
    match row["kind"]:
        case EntryKind.STEP:
            return Node(row["at"], row["seconds"], f"{text} ({row['state']})")
        case EntryKind.TEXT:
            return Node(row["at"], None, _("text of {n} characters", n=len(row["text"])))
        case EntryKind.NOTICE:
            return Node(row["at"], None, text)
    return None  # a question has its own row


def _question(row: Mapping[str, Any]) -> Node:
    seconds = row["answered_at"] - row["asked"] if row["answered_at"] else None
    return Node(row["asked"], seconds, _("question ({kind}, {state})", kind=row["kind"], state=row["state"]))


def _deliveries(found: Mapping[str, Any]) -> list[Node]:
    ids = ", ".join(each["message_id"] for each in found["posts"] if each["message_id"])
    first = min((each["created"] for each in found["posts"]), default=0.0)
    shown = [Node(first, None, _("first visible words, message {ids}", ids=ids))] if first else []
    rows = []
    for each in found["deliveries"]:
        state = _(STATES[OutboxState(each["state"])])
        error = f" ({each['error']})" if each["error"] else ""
        text = _("{kind}: {state}, attempts {n}", kind=each["kind"], state=f"{state}{error}", n=each["attempts"])
        rows.append(Node(each["created"], None, text))
    return [*shown, *rows]


def _walk(nodes: list[Node], prefix: str) -> list[tuple[Node, str]]:
    found = []
    for number, node in enumerate(nodes):
        last = number == len(nodes) - 1
        found.append((node, prefix + ("└─ " if last else "├─ ")))
        found += _walk(node.inside, prefix + ("   " if last else "│  "))
    return found


def _line(node: Node, origin: float, prefix: str) -> str:
    took = f"{node.seconds:8.2f} s" if node.seconds is not None else " " * 10
    return f"{max(0.0, node.at - origin):+9.2f} s {took}  {prefix}{node.text}"


SHOWN = 5  # messages of a thread
SEARCHED = 5000  # newest rows of the audit


def lookups(store: Database, ignored: Callable[[], Sequence[IgnoredEvent]] = tuple) -> Mapping[str, Callable[..., Any]]:
    """Return the operations that only read."""

    async def look_up_person(channel: str, person: str) -> dict[str, Any]:
        return await store.run(partial(_describe_person, person=PersonKey(channel, person)))

    async def why(what: str) -> dict[str, Any]:
        return await store.run(partial(_find_reasons, what=what, ignored=ignored))

    async def trace(what: str) -> dict[str, Any]:
        return await look_up_trace(store, what)

    return {"forget.look": look_up_person, "why": why, "trace": trace}


def _describe_person(execute: Execute, person: PersonKey) -> dict[str, Any]:
    """Return the name of a person and how much is stored of them; `known` is false if nothing is."""
    row = people.find_person(execute, person.channel, person.id)
    counts = count_traces(execute, person)
    paired = bool(row and (row.allowed or row.operator))
    return {"known": bool(row) or any(counts.values()), "name": row.name if row else "", "paired": paired, **counts}


def _find_reasons(execute: Execute, what: str, ignored: Callable[[], Sequence[IgnoredEvent]]) -> dict[str, Any]:
    """Return what happened to the message with this key, or to the latest ones of this thread, person, chat or time."""
    row = inbox.find_message(execute, what)
    rows = [row] if row else inbox.latest_of_thread(execute, what, SHOWN)
    is_thread = bool(conversations.list_threads(execute, what))
    left = [asdict(each) for each in reversed(ignored()) if what in (each.key, each.thread)]
    if not (rows or is_thread or left):
        rows, left = find_messages(execute, what, ignored, time.time())
    known = {each.key for each in rows[:SHOWN]}
    left = [each for each in left[:SHOWN] if each["key"] not in known]
    found = []
    for each in rows[:SHOWN]:
        run = find_run(execute, each.run) if each.run else None
        state = {"state": int(each.state), "run": run.state if run else "", "kind": each.kind}
        found.append({"key": each.key, "at": each.received, "reason": each.error, **state})
    refused = [] if row or left else _denials(execute, what)
    is_known = bool(rows or left or refused or is_thread)
    return {"what": what, "messages": found, "ignored": left, "refused": refused, "known": is_known}


def _denials(execute: Execute, address: str) -> list[dict[str, Any]]:
    """Return whose messages in this place were refused lately, the latest first."""
    places = find_aliases(execute, address) if address else set()
    events = [row.event for row in read_newest(execute, SEARCHED)] if places else []
    found = [each for each in events if each["kind"] == AuditKind.ACCESS_DENIED and each.get("where") in places][:SHOWN]
    names = find_names(execute, {each.get("who", "") for each in found})
    return [
        {
            "at": each["at"] / 1000,
            "person": names.get(each.get("who", ""), ""),
            "reason": each.get("what", {}).get("reason", ""),
        }
        for each in found
    ]
