"""Name the JSON that operators are answered. Times are in unix seconds, costs in millionths of the currency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TroubleAnswer:
    """What keeps the service from its work: a part of it, since when (ISO 8601), and why."""

    part: str
    since: str
    why: str


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """A configured channel. `health` is starting, ready or down."""

    name: str
    health: str
    since: float
    detail: str


@dataclass(frozen=True, slots=True)
class ChannelList:
    """The channels."""

    channels: list[ChannelAnswer]


@dataclass(frozen=True, slots=True)
class ModelError:
    """The latest error of a model."""

    model: str
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class JobsAnswer:
    """How many background jobs wait, run and were given up; `failing` names one and its error."""

    waiting: int
    running: int
    given_up: int
    failing: str


@dataclass(frozen=True, slots=True)
class Thumbs:
    """How often people found an answer good and bad in the last 30 days."""

    up: int
    down: int


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """What `fawn status` shows. `queued` conversations wait for a turn, the oldest for `oldest` seconds."""

    version: str
    healthy: bool
    ready: bool
    started: float
    troubles: list[TroubleAnswer]
    channels: list[ChannelAnswer]
    model: str
    model_error: ModelError | None
    sandbox: str
    turns: int
    queued: int
    oldest: int
    undelivered: int
    dead: int
    unpaired: int
    jobs: JobsAnswer
    feedback: Thumbs


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """A turn in progress: whose it is, since when, what it does now, and what it has used.

    `host` and `replica` name the process that works on it, "" where one works alone; `here` is whether that process is
    the one that answers. Of another process's turn, steps and use are what has been stored of it so far.
    """

    run: int
    thread: str
    title: str
    person: str
    name: str
    attempt: int
    agent: str
    started: float
    doing: str
    steps: int
    calls: int
    tokens: int
    host: str
    replica: str
    here: bool


@dataclass(frozen=True, slots=True)
class TurnList:
    """The turns in progress at all processes that share the database, the longest first."""

    turns: list[TurnAnswer]


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """A run that was asked to stop. `stopped` is false for one that had ended."""

    run: int
    stopped: bool


@dataclass(frozen=True, slots=True)
class QueuedAnswer:
    """A conversation that waits for a turn. `why`: it gathers the rest of a message, all places are busy, or it is
    next."""

    thread: str
    title: str
    person: str
    name: str
    messages: int
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class QueueList:
    """The conversations that wait, the first first."""

    queue: list[QueuedAnswer]
    places: int
    busy: int
    next: str | None


@dataclass(frozen=True, slots=True)
class DeadAnswer:
    """What could not be delivered, or ("event") read. Its words stay on the machine."""

    id: str
    kind: str
    thread: str
    created: float
    error: str


@dataclass(frozen=True, slots=True)
class DeadList:
    """The dead letters."""

    dead: list[DeadAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class DeadChange:
    """A dead letter that is delivered again, or was dropped."""

    id: str
    state: str


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """An event of the audit. `who`, `subject` and `where` are names as far as they are known, else pseudonyms."""

    seq: int
    at: float
    kind: str
    who: str
    name: str
    subject: str
    where: str
    run: int | None
    what: dict[str, Any]
    result: str
    cost: int


@dataclass(frozen=True, slots=True)
class AuditList:
    """Events, the newest first."""

    events: list[AuditAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the chain is whole: how many rows are valid, its head, and the first fault ("": none)."""

    valid: bool
    rows: int
    head: str
    fault: str


@dataclass(frozen=True, slots=True)
class FeedbackAnswer:
    """A thumb: `up` or `down`."""

    run: int
    thread: str
    title: str
    person: str
    name: str
    value: str
    at: float


@dataclass(frozen=True, slots=True)
class FeedbackList:
    """The thumbs, the newest first, and how many there were in 30 days."""

    feedback: list[FeedbackAnswer]
    counts: Thumbs
    next: str | None


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """What one person, chat, model or day cost. `unpriced` of the calls have no known price."""

    key: str
    name: str
    cost: int
    tokens: int
    calls: int
    unpriced: int


@dataclass(frozen=True, slots=True)
class UsageList:
    """The usage since a time, the most expensive 50 first; days in their order."""

    by: str
    since: float
    total: UsageAnswer
    usage: list[UsageAnswer]


@dataclass(frozen=True, slots=True)
class FireAnswer:
    """The latest time that a schedule ran: when it was due, what came of it, and what that cost."""

    due: float
    at: float
    result: str
    run: int | None
    cost: int


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """A schedule. `what` is empty for one in another's direct chat. `form`: `at`, `every` or `cron`."""

    id: int
    kind: str
    state: str
    what: str
    form: str
    expression: str
    zone: str
    thread: str
    person: str
    name: str
    next: float | None
    busy: bool
    last: FireAnswer | None


@dataclass(frozen=True, slots=True)
class ScheduleList:
    """ScheduleList that have not ended."""

    schedules: list[ScheduleAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """A background task. `title` is empty for one of another's direct chat."""

    id: int
    kind: str
    state: str
    title: str
    thread: str
    person: str
    name: str
    created: float
    started: float | None
    ended: float | None
    run: int | None
    cost: int


@dataclass(frozen=True, slots=True)
class TaskList:
    """Background tasks, the newest first."""

    tasks: list[TaskAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class ChangedSchedule:
    """A schedule that was changed. `state`: active, paused or deleted."""

    id: int
    state: str


@dataclass(frozen=True, slots=True)
class ChangedTask:
    """A background task that ends."""

    id: int
    state: str


@dataclass(frozen=True, slots=True)
class WaitingAnswer:
    """What waits for the caller, in any of their chats: a question, an approval with its exact call, a stranger, a
    skill. `target` names it where it was asked."""

    number: int
    kind: str
    text: str
    options: list[str]
    free_text: bool
    call: str
    thread: str
    title: str
    who: str
    since: float
    target: str


@dataclass(frozen=True, slots=True)
class WaitingList:
    """What waits, the oldest first."""

    waiting: list[WaitingAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class AnswerBody:
    """An answer: one of the options, or a text where the question takes one."""

    answer: str


@dataclass(frozen=True, slots=True)
class AnsweredItem:
    """An answer that counts."""

    number: int
    answer: str
