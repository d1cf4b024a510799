"""Define what a command is and what a use of it gets: the call, the service, its rights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.blocks import command_hint
from agent.messages import Message, Thread
from bot.commands.waits import Waiting
from bot.config.team import RoleConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.rights import deeds
from bot.rights.current import Current
from bot.rights.deeds import Deed
from bot.storage import conversations
from bot.storage.conversations import ConversationRow
from catalogue import _
from channels.base import Channel, Health


@dataclass(frozen=True, slots=True)
class CommandService:
    """Values and functions of the running service that commands use."""

    current: Current
    status: Callable[[Execute], str]  # a few lines for operators: version, model, sandbox, running turns
    health: Callable[[], Health]
    stop_run: Callable[[int, str], None]  # cancels the work of a run for a person
    channel: Callable[[str], Channel | None]
    commands: CommandTable
    channel_states: Callable[[], Sequence[str]] = tuple  # a sentence for each channel
    take_tool: Callable[[Execute, str, str], float | None] = lambda *_call: None  # counts a call, see `take_once`
    waits: Callable[[Execute, Message, float], Sequence[tuple[int, Waiting]]] = lambda _execute, _viewer, _now: ()
    reload: Callable[[Message], None] = lambda message: None  # reads the configuration again for a command


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One use of a command."""

    execute: Execute
    message: Message
    conversation: str
    words: str  # what follows the command's name
    service: CommandService
    after: list[Callable[[], None]]  # to do after the commit
    now: float

    @property
    def current(self) -> Current:
        return self.service.current

    def may(self, deed: Deed) -> bool:
        """Return whether the person has the right for this deed as far as it reaches."""
        return self.current.access.may_do(self.execute, self.thread, self.message.author.id, deed)

    def refuse(self, command: str, deed: Deed) -> str:
        """Say that the person's role does not let them use a command, and note it in the audit."""
        self.record(AuditKind.ACCESS_DENIED, {"command": command})
        if deed.is_beyond_chat and deed.right in self.role.rights:
            return _(
                "`{command}` reaches beyond this chat: it needs a role in the whole workspace, where yours is"
                " **{role}**.",
                command=command_hint(command),
                role=self.workspace_role.name or "-",
            )
        return _(
            "Your role here, **{role}**, doesn't let you use `{command}`. `{whoami}` shows what you may do.",
            role=self.role.name,
            command=command_hint(command),
            whoami=command_hint("whoami"),
        )

    @property
    def role(self) -> RoleConfig:
        return self.current.access.role_of(self.execute, self.thread, self.message.author.id)

    @property
    def workspace_role(self) -> RoleConfig:
        return self.current.access.workspace_role_of(self.execute, self.thread, self.message.author.id)

    @property
    def thread(self) -> Thread:
        return self.message.thread

    @property
    def here(self) -> ConversationRow:
        row = conversations.find_conversation(self.execute, self.conversation)
        if row is None:
            raise LookupError(f"there is no conversation {self.conversation}")
        return row

    def record(self, kind: AuditKind, what: Mapping[str, int | str]) -> None:
        """Note in the audit what the command does."""
        audit.record(self.execute, AuditEvent(kind, self.thread, self.message.author.id, what=what))


class CommandTable(Protocol):
    """All commands of the service. `known` are those that always exist, by name."""

    @property
    def known(self) -> Mapping[str, Command]:
        """Name → command."""

    def find(self, name: str) -> Command | None:
        """Return the command of this name."""

    def ranked(self) -> Sequence[Command]:
        """Return the commands that always exist, in the order of `/help`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `run` returns the answer (Markdown), "" for none; `words` names what may follow the command, `deed`
    what every use of it is. `begins_work` says whether the agent works on such words: it counts as a message for the
    rate limits. `rank` is its place in `/help`.
    """

    name: str
    help: str
    run: Callable[[CommandCall], str]
    words: str = ""
    deed: Deed = deeds.SHOW
    begins_work: Callable[[str], bool] = lambda _words: False
    rank: int = 500

    def answer(self, call: CommandCall) -> str:
        """Run the command, if the person has the right."""
        return self.run(call) if call.may(self.deed) else call.refuse(self.name, self.deed)
