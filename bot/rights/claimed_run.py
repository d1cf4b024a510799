"""A run that was claimed for a turn, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from agent.blocks import Approve, Ask
from agent.core.context import Answer
from agent.messages import Author, Message, Origin, ReplyHandle, Requester, Thread
from agent.turn.checkpoint_rows import ReadState
from bot.config.team import RoleConfig
from bot.database.states import RunState
from bot.storage.exposures import ExposureRow
from channels.base import SentMessage


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run to execute: the claimed conversation and what it must answer."""

    conversation: str
    thread: Thread
    fence: int
    run: int
    attempt: int
    deaths_alone: int  # of the process, while no other run was in progress
    requester: str
    language: str  # of the requester, in which this run speaks
    started: float  # unix time of the first attempt
    reply_to: str
    reply_handle: ReplyHandle | None  # of that message, as it is stored
    messages: tuple[Message, ...]
    answers: tuple[Answer, ...]
    model: str
    may_use_model: Callable[[str], bool]  # whether it may answer the requester
    effort: str  # of the model
    agent: str  # "" for the default one
    title: str
    first: bool  # no run of the conversation has ended yet
    fresh: bool  # the checkpoint cannot hold unfinished work
    resumed: bool  # there may be more messages for it: it was begun or queued before, or it takes only answers
    stop_by: str  # who stopped it before a restart
    posted: tuple[SentMessage, ...]  # what is visible of its reply already
    role: RoleConfig  # of the requester, at the claim as all below
    roles: tuple[RoleConfig, ...]  # of everybody whose messages it answers
    exposure: ExposureRow  # of the conversation
    state: ReadState | None  # of the conversation, where the turn begins at once

    @property
    def asked(self) -> float:
        """The unix time of the oldest of its messages."""
        return min((each.time for each in self.messages if each.time), default=self.started)

    @property
    def recalled(self) -> Collection[str]:
        """The keys of the messages with which an earlier attempt began, whose work the checkpoint has."""
        return {each.key for each in self.messages} if self.resumed and not self.answers else ()

    @property
    def author(self) -> Author:
        """The requester, with their name if a message of theirs is known."""
        known = (each.author for each in self.messages if each.author.id == self.requester)
        return next(known, Author(self.requester, "", language=self.language))

    @property
    def who(self) -> Requester:
        """The requester, and where they asked."""
        private = any(each.private for each in self.messages if each.author.id == self.requester)
        return Requester(self.author, self.thread, private)

    @property
    def beneficiary(self) -> Requester:
        """Whose the work is that this run begins: who pays for it, and where it was asked for."""
        author = self.author if self.payer == self.requester else Author(self.payer, "", language=self.language)
        return replace(self.who, person=author)

    @property
    def is_unattended(self) -> bool:
        """Whether a schedule, a task or a hook began it: nobody waits, and its result is one new message."""
        return any(each.origin in (Origin.SCHEDULE, Origin.TASK, Origin.HOOK) for each in self.messages)

    @property
    def is_of_hook(self) -> bool:
        """Whether another system began it: its person lends the rights, and asked for nothing."""
        return any(each.origin is Origin.HOOK for each in self.messages)

    @property
    def payer(self) -> str:
        """The id of the person whose budgets pay: the requester, or who had their request repeated."""
        return next((each.resent_by for each in self.messages if each.resent_by), self.requester)


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ended."""

    state: RunState
    asks: tuple[Ask | Approve, ...] = ()
    title: str = ""
    clean: bool = True  # the checkpoint holds nothing unfinished
    asked: bool = False  # questions were asked while the turn worked
    has_ledger: bool = True  # calls may be in the tool ledger
    has_steps: bool = True  # steps may be in the journal
