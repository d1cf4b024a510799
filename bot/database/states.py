"""Name the states that the database stores.

Statements contain them as constants, not as parameters: a query uses a partial index only for a literal value.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class InboxState(IntEnum):
    """The state of a received event."""

    NEW = 0
    DONE = 1
    WITHDRAWN = 2  # by its author, or not meant for the bot
    DEAD = 3  # cannot be read; waits for an operator


class OutboxState(IntEnum):
    """The state of an outbox row."""

    NEW = 0
    CLAIMED = 1  # in a lane of this process
    SENT = 2
    DEAD = 3  # failed for good; waits for an operator
    DROPPED = 4  # by an operator, or because its chat is gone


class ReplicaState(StrEnum):
    """What a process does that has a lease."""

    STARTING = "starting"  # it claims no conversations yet
    SERVING = "serving"
    STOPPING = "stopping"  # it claims no more


class OutboxKind(StrEnum):
    """What an outbox row delivers."""

    REPLY = "reply"  # the end of a run
    FILE = "file"  # the files of a run
    PING = "ping"  # tells the requester that a long run ended
    SAY = "say"  # a notice of the bot itself
    SETTLED = "settled"  # what became of a question, in the messages that show it


class PageLogin(StrEnum):
    """What a row of those who use the page is."""

    LINK = "link"  # to be opened once
    SESSION = "session"


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    WAITING = "waiting"  # for the answer to a question
    STOPPED = "stopped"
    FAILED = "failed"


class EntryKind(StrEnum):
    """What an entry of a transcript is."""

    MESSAGE = "message"  # of a person
    ANSWER = "answer"  # of a person to a question
    TEXT = "text"  # of the agent
    QUESTION = "question"
    STEP = "step"
    FILE = "file"
    NOTICE = "notice"
    FEEDBACK = "feedback"  # of a person, in an export only


class ConversationState(StrEnum):
    """What the checkpoint of a conversation holds between two turns."""

    IDLE = "idle"
    DIRTY = "dirty"  # it may hold unfinished work
    WAITING = "waiting"  # open questions


class PairingState(IntEnum):
    """The decision about a person."""

    DECLINED = -1
    NONE = 0  # they hold a code, or the configuration names them
    ALLOWED = 1


class QuestionKind(StrEnum):
    """What a question asks for."""

    ASK = "ask"  # an answer
    APPROVE = "approve"  # permission for one exact call


class QuestionState(StrEnum):
    """The state of a question."""

    OPEN = "open"
    ANSWERED = "answered"  # a turn must resume with the answer
    CLOSED = "closed"


OPEN_RUN = f"state IN ('{RunState.QUEUED}', '{RunState.RUNNING}')"
"""The condition of the partial index `runs_open`."""


class ScheduleState(StrEnum):
    """The state of a schedule."""

    PROPOSED = "proposed"  # its owner has not confirmed it
    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"  # it has no further time, or was declined


class FireResult(StrEnum):
    """What a fire of a schedule led to."""

    RUN = "run"  # a message for the agent, with a run of its own
    SENT = "sent"  # a reminder
    CHECKING = "checking"  # a job looks at the page
    UNCHANGED = "unchanged"  # the page is as it was
    UNREADABLE = "unreadable"  # the page could not be read
    MISSED = "missed"  # the service did not run, and the rule skips it
    BUSY = "busy"  # the run before it took longer, and the rule skips it
    NO_BUDGET = "no budget"  # a budget that it needs is used up


class DeliveryState(StrEnum):
    """The state of what another system posted to a hook."""

    WAITING = "waiting"  # for others that become one post with it
    NOTICED = "noticed"  # posted, but its conversation does not know it yet
    POSTED = "posted"
    DAMAGED = "damaged"  # it cannot be read any more


class TaskKind(StrEnum):
    """What a background task is."""

    COMMAND = "command"  # a process in a sandbox, which ends with the process of the service
    AGENT = "agent"  # a run in a conversation of its own
    SCHEDULE = "schedule"  # the run of a schedule


class TaskState(StrEnum):
    """The state of a background task."""

    QUEUED = "queued"
    RUNNING = "running"
    RUN = "run"  # the state of its run is its state
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # the service or the sandbox ended while it ran
    CANCELLED = "cancelled"


OPEN_TASK = f"state IN ('{TaskState.QUEUED}', '{TaskState.RUNNING}')"
"""The condition of the partial index `tasks_open`."""
