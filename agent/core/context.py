"""Inputs of a turn and the services it depends on.

`Turn` is the input. `TurnContext` holds the services: sandbox, tool ledger and steering queue. The bot implements them
over its storage.

The brief: the system text of a turn, made once before its first model call.

Providers cache the longest common prefix of two requests. So the parts that change least come first, and the text
contains nothing that differs between two turns, such as the time. Imports nothing heavy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from agent.background import BackgroundWork
from agent.blocks import Approve, Ask, Step
from agent.exposure import Exposure
from agent.memory.visibility import LinkKind, MemoryKind, MemoryScope
from agent.messages import UserInput
from agent.parsing.child import ParserProcess
from agent.permissions.rules import GRANTED, Judgement, PermissionGate, RulePermissions, ToolUse
from agent.reach import Reach
from agent.schedules import Schedules
from agent.settings.models import AgentConfigError
from agent.settings.sections import PromptConfig
from agent.skills.library import SkillLibrary, TurnSkills
from agent.spending import CostHistory, Meter
from catalogue import N_, LazyText
from sandbox.base import SandboxHandle

if TYPE_CHECKING:
    from langgraph.types import Interrupt

    from agent.models.loader import LoadedModel
    from agent.web.fetcher import WebFetcher
    from agent.web.search import WebSearch


T = TypeVar("T")

Execute = Callable[[str, Mapping[str, Any]], Sequence[Any]]
"""Run one SQL statement with named parameters in a transaction and return its rows, indexed by column name."""


MakePreviewLink = Callable[[object, int], Awaitable[str]]
"""Make a link to a port of a sandbox. Raises SandboxError."""


@dataclass(frozen=True, slots=True)
class ToolServices:
    """The parts of the service that tools use, beside those of the turn."""

    runs_commands: bool  # the sandbox can run commands
    make_preview_link: MakePreviewLink | None = None
    skills: SkillLibrary | None = None
    propose_skills: bool = False
    remembers: bool = False  # memory is enabled
    fetcher: WebFetcher | None = None
    search: WebSearch | None = None
    schedules: bool = False  # people may have schedules
    background: bool = False  # people may have background tasks
    parser: ParserProcess = field(default_factory=ParserProcess)  # one of the service


class TransactionRunner(Protocol):
    """The database of the checkpoints."""

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True) -> T:
        """Run `work` in a transaction and commit. If it raises, roll back and raise the same error.

        A power failure may undo what is not `durable`, until the next durable commit.
        """


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an open question: `id` is the interrupt's id, `key` the key of the message."""

    id: str
    text: str
    key: str


NO_ANSWER = "no answer in time"  # the text of an answer to a question that expired


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one conversation.

    `conversation` is the checkpoint thread. `fresh` means that the checkpoint needs no check for unfinished work: the
    last turn ended cleanly, and this is the first attempt. `answers` resume interrupts.
    """

    conversation: str
    inputs: tuple[UserInput, ...]
    model: str = ""  # "" = the configured lead model
    effort: str = ""  # the reasoning effort of `model`; "" = the configured one
    agent: str = ""  # "" = the default agent
    worker: str = ""  # the kind of sub-agent that works for `agent` in the background; "" = `agent` itself
    answers: tuple[Answer, ...] = ()
    fresh: bool = False
    begun: tuple[Step, ...] = ()  # steps of sub-agents that an earlier attempt began
    merge_window_seconds: float = 0.2  # how long text deltas are merged
    may_use_model: Callable[[str], bool] = lambda model: True  # whether it may answer the requester


@dataclass(frozen=True, slots=True)
class CallNote:
    """A decision about a tool call, or its end, for the audit: digests in place of arguments."""

    kind: Literal["call", "result"]
    tool: str
    outcome: str  # allowed, granted, approved, denied; of a result: success, error, unknown, replayed, rate
    arguments: str = ""  # SHA-256
    approval: str = ""  # SHA-256 of the call as a person saw it
    by: str = ""  # what denied it: rule, person, plan, fault


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A tool call and what rules said about it: `allow`, `granted`, `ask` or `deny`. `key` is unique in its
    conversation, `at` a unix time."""

    key: str
    use: ToolUse
    verdict: str
    at: float = field(default_factory=time.time)

    @classmethod
    def of(cls, key: str, use: ToolUse, judgement: Judgement) -> JudgedCall:
        """Return a call as it was judged just now."""
        return cls(key, use, GRANTED if judgement.rule == GRANTED else judgement.verdict)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A tool call that was started before: its `result`, or None if it did not end."""

    result: str | None


class ToolLedger(Protocol):
    """Records tool calls of a conversation, so that effects happen once. Each method commits."""

    async def begin(self, call: str) -> LedgerEntry | None:
        """Record the call as started and return None, or return the entry of an earlier attempt."""

    async def end(self, call: str, result: str) -> None:
        """Record the result. A power failure soon after may undo it, and then the outcome is unknown."""


class SteeringQueue(Protocol):
    """Messages that people send while a turn runs."""

    async def take_unread(self) -> tuple[UserInput, ...]:
        """Return new messages, each once per turn. Cheap if there are none."""


class MemoryNotes(Protocol):
    """The memory of a turn. It acts for the requester; each answer is a text for the model."""

    notes: str
    """What goes with the turn's message; "" for nothing."""

    async def save(self, text: str, quote: str, kind: MemoryKind, scope: MemoryScope, replaces: int) -> str:
        """Store a fact that the requester wrote in this conversation, in the words `quote`."""

    async def search(self, text: str) -> str:
        """Return the memories that match any word."""

    async def forget(self, number: int, quote: str) -> str:
        """Delete a memory of the requester, who asked for it in the words `quote`."""

    async def link(self, number: int, kind: LinkKind, to: int) -> str:
        """Say how one memory of the requester concerns another."""

    async def unlink(self, number: int, to: int) -> str:
        """Delete the links between two memories of the requester."""


class ToolRates(Protocol):
    """How often tools may be called."""

    async def take(self, tool: str) -> float | None:
        """Count a call and return None, or return the unix time when the tool may be called again."""


class LiveQuestions(Protocol):
    """Asks people while the turn works."""

    async def ask(self, question: Ask | Approve, idle: asyncio.Future[None]) -> str | None:
        """Show a question at once and return the answer; None when `idle` is done before."""


class AskingTask(Protocol):
    """A task, or the board of the lead, whose tools may ask people."""

    async def wait_for_answer(self, interrupt: Interrupt) -> str | None:
        """Return the answer to the question of an interrupt, or None if the turn must end to wait for it."""


OwnSandboxes = Callable[[str], AbstractAsyncContextManager[SandboxHandle]]
"""Open the sandbox of one task, whose key stays the same after a restart."""


@dataclass(eq=False, slots=True)
class WorkClock:
    """How long a turn may work."""

    seconds: float
    timeout: asyncio.Timeout | None = None

    def shorten(self, seconds: float) -> None:
        """Let the turn work for so long from now on, if that is less."""
        if seconds < self.seconds:
            self.seconds = seconds
            if self.timeout:
                self.timeout.reschedule(asyncio.get_running_loop().time() + seconds)


@dataclass(slots=True)
class TurnContext:
    """The services of one turn, passed to LangGraph as its runtime context.

    `brief` is the system text of all its model calls. The first of `route` is the model in use, the others are its
    fallbacks; the agent sets it. `vision` takes over when people show a picture to a model that does not see; None: no
    model does, or it has taken over. `asked` are the ids of the open interrupts in which the permission policy asked.
    `tasks` are the sub-agents of the turn, which the agent sets, and `task` is the one that this context belongs to.
    The next commit of the turn stores `notes` in the audit, and the calls that were `judged`: that of the ledger comes
    before each effect.
    """

    sandbox: SandboxHandle
    ledger: ToolLedger
    steering: SteeringQueue
    brief: str = ""
    route: Sequence[LoadedModel] = ()
    may_use_model: Callable[[str], bool] = lambda model: True
    vision: LoadedModel | None = None
    taken_steering: list[UserInput] = field(default_factory=list)  # messages that joined this turn
    meter: Meter = field(default_factory=Meter)
    notes: list[CallNote] = field(default_factory=list)
    judged: list[JudgedCall] = field(default_factory=list)
    permissions: PermissionGate = field(default_factory=RulePermissions)
    exposure: Exposure = field(default_factory=Exposure)  # one for the turn and all that works for it
    reach: Reach = field(default_factory=Reach)  # the tools of the agent; what works for it has no others
    asked: Collection[str] = ()
    memory: MemoryNotes | None = None  # None: it is off
    notes_in: str | None = None  # the id of the message with the notes, from the first call on
    call_ids: set[str] = field(default_factory=set)  # of tool calls in this turn, those of sub-agents included
    pictures: dict[str, str] = field(default_factory=dict)  # base64 of those that a model got, by path
    counted_tokens: int = 0  # of the meter: the goal in the state includes them
    skills: TurnSkills | None = None
    tool_rates: ToolRates | None = None
    schedules: Schedules | None = None
    background: BackgroundWork | None = None  # None: sub-agents start no tasks
    questions: LiveQuestions | None = None
    own_sandboxes: OwnSandboxes | None = None
    tasks: Any = None  # agent.subagents.board.TaskBoard, which imports the tools
    task: AskingTask | None = None
    clock: WorkClock | None = None
    costs: CostHistory | None = None  # None: a plan is shown without its expected cost

    def helper_model(self, wanted: LoadedModel | None) -> LoadedModel:
        """Return the model of a role such as summaries, or that of the turn if the requester's role excludes it."""
        return wanted if wanted and self.may_use_model(wanted.settings.name) else self.route[0]


def join_parts(*parts: str) -> str:
    """Join the parts of a brief, the most stable first; empty ones are left out."""
    return "\n\n".join(text for part in parts if (text := part.strip()))


def read_prompt(prompt: PromptConfig) -> str:
    """Return the agent's prompt, the first part of every brief. Raises AgentConfigError if it cannot be read."""
    source = Path(prompt.file) if prompt.file else resources.files("agent") / "prompt.md"
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else LazyText(N_("it is not UTF-8 text"))
        wrong = LazyText(N_("{file!r} cannot be read: {reason}"), file=prompt.file, reason=reason)
        fix = LazyText(N_("check the path; it starts at the folder of the file"))
        raise AgentConfigError(("prompt", "file"), wrong, fix) from error
    return join_parts(text, prompt.extend)
