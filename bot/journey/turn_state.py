"""Hold what a turn has done so far, and what its end writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.blocks import Final, View
from agent.core.context import WorkClock
from bot.config.schema import ServiceLimits
from bot.journey.artifacts import Artifacts
from bot.journey.attachments import Attachments
from bot.journey.live_questions import StoredLiveQuestions
from bot.journey.running_turn import Account, StoredSteering
from bot.journey.step_journal import StepJournal
from bot.journey.task_sandboxes import TaskSandboxes
from bot.journey.transcript import TranscriptRecorder
from bot.journey.turn_part import TurnPart
from bot.rights.claimed_run import RunEnding
from sandbox.engines.select import LazySandbox

if TYPE_CHECKING:  # it imports the whole agent stack, which the bot loads in a thread after it listens
    from agent.turn.turn import Agent


@dataclass(slots=True)
class TurnState:
    """What a turn has done so far, kept outside its task, so that a stop finds it."""

    agent: Agent
    limits: ServiceLimits
    account: Account
    uploads: Attachments
    steering: StoredSteering
    view: View
    journal: StepJournal
    questions: StoredLiveQuestions
    task_sandboxes: TaskSandboxes
    sandbox: LazySandbox
    parts: Sequence[TurnPart] = ()  # of the features
    title: str = ""  # for a conversation without one, where no model makes it
    title_text: str = ""  # from which a model makes it
    clock: WorkClock = field(init=False)
    begun: bool = False  # the agent was called: its checkpoint may need repair
    clean: bool = False  # the agent ended by itself

    def __post_init__(self) -> None:
        self.clock = WorkClock(self.limits.turn_seconds)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What the transaction that ends a run writes. `before` are the stored stamps of outputs/."""

    ending: RunEnding
    final: Final
    collected: Artifacts = field(default_factory=lambda: Artifacts(stamps={}))
    before: Mapping[str, str] = field(default_factory=dict)
    title_text: str = ""
    transcript: TranscriptRecorder | None = None
