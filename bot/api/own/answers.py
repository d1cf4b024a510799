"""Name the JSON that people are answered about what is theirs."""

from __future__ import annotations

from dataclasses import dataclass

from bot.api.operate.answers import ScheduleAnswer, TaskAnswer


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model that the person may use. The first one of the list answers where none is chosen."""

    name: str
    label: str
    efforts: list[str]


@dataclass(frozen=True, slots=True)
class ModelList:
    """The models that the person may use."""

    models: list[ModelAnswer]


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """A named agent that the person may use."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class AgentList:
    """The agents that the person may use."""

    agents: list[AgentAnswer]


@dataclass(frozen=True, slots=True)
class SkillAnswer:
    """A skill. `state` is enabled, disabled or changed."""

    name: str
    description: str
    state: str
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class SkillList:
    """The skills that the person may use."""

    skills: list[SkillAnswer]


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """What the agent remembers of the person: when it was said, and where."""

    id: int
    kind: str
    subject: str
    text: str
    said: float
    thread: str


@dataclass(frozen=True, slots=True)
class MemoryList:
    """Memories, the newest first. `on`: new ones are kept, and these are used."""

    on: bool
    memories: list[MemoryAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A memory that was deleted."""

    id: int


@dataclass(frozen=True, slots=True)
class OwnSchedules:
    """The schedules of the person."""

    schedules: list[ScheduleAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class OwnTasks:
    """The background tasks of the person, the newest first."""

    tasks: list[TaskAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """A schedule after the change (null: it is deleted), and what the command says."""

    schedule: ScheduleAnswer | None
    said: str


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task after the change, and what the command says."""

    task: TaskAnswer
    said: str


@dataclass(frozen=True, slots=True)
class NewThread:
    """A thread to begin: up to 64 letters, digits, - and _ as its id, and a title."""

    id: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ThreadTitle:
    """The title of a thread, as one line."""

    title: str


@dataclass(frozen=True, slots=True)
class ThreadAnswer:
    """A thread."""

    id: str
    title: str
    created: float
    used: float


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry with all words. `by` is person or agent."""

    id: int
    thread: str
    run: int | None
    by: str
    kind: str
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class FoundList:
    """What was found, the newest first."""

    entries: list[FoundEntry]
    next: str | None


@dataclass(frozen=True, slots=True)
class Retried:
    """A run whose messages were sent again: the thread says when they have one."""

    run: int
    thread: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Work that was asked for: the thread says what comes of it."""

    command: str
