"""The protocol of console views and what they show, and text without control characters.

Define what the console asks the service that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from agent.blocks import NOTED_STEP, Block, Final, PlanItem, Step
from agent.messages import Attachment, Thread
from catalogue import N_, _
from channels.base import OutgoingFile
from channels.shared.reply_layout import STEP_MARKS, count_steps, step_title
from channels.shared.texts import shorten

_CONTROL = {code: None for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\n\t"}
ICONS = {**STEP_MARKS, "running": "•", "pending": "○"}
_MAX_TITLE_CHARS = 200
PLAN_HEAD = N_("Plan · {done} of {n} done")


class Key(Enum):
    INTERRUPT = "Ctrl-C"
    STEPS = "Ctrl-O"


class Look(StrEnum):
    """How a written text looks on a terminal."""

    PLAIN = "plain"
    MARKDOWN = "markdown"
    OWN = "own"  # the person's words
    HINT = "hint"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Typed:
    """One message of the person, with the files that it names."""

    text: str
    files: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the turn of a conversation is."""

    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class FinalReply:
    """What stays of a reply. `earlier` are the texts before the answer; `of_turn` is False for a notice of the bot."""

    text: str
    state: str = "done"
    earlier: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    plan: tuple[PlanItem, ...] = ()
    seconds: float = 0.0
    tokens: int = 0
    of_turn: bool = False
    reply: int = 0  # the running reply in whose place it appears


class ConsoleView(Protocol):
    """The input and output of one console. A view without a person (not `is_interactive`) reads until its input ends
    and then waits for the answers; what it cannot show, it ignores."""

    is_interactive: bool

    @property
    def is_gone(self) -> bool:
        """Whether nobody is there any more."""
        return False

    async def read(self) -> Typed | Key | None:
        """Return the next message or key, or None at the end of the input."""

    async def is_overdue(self) -> bool:
        """Return whether what was sent is to be stopped, as soon as that is known; asked after the end of the input."""
        return False

    def show(self, reply: int, block: Block) -> None:
        """Show a block of a running reply soon. Returns at once."""

    def drop(self, reply: int) -> None:
        """Stop showing a running reply."""
        return

    def set_busy(self, busy: bool) -> None:
        """Show whether a turn is running. The first True follows the receipt of a message."""
        return

    def set_progress(self, progress: Progress) -> None:
        """Show how far the running turn is."""
        return

    def set_language(self, language: str) -> None:
        """Set the language of what the view itself says."""
        return

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        """Set the commands (name, help) to complete."""
        return

    async def write(self, text: str, look: Look = Look.PLAIN) -> None:
        """Print after all earlier output. Raises ChatGone if the output is closed."""

    async def write_reply(self, final: FinalReply) -> None:
        """Print a final reply. Raises ChatGone if the output is closed."""

    async def save_file(self, file: OutgoingFile) -> str:
        """Save a file to the folder for downloads, print where it is, and return its path. Raises ChannelError."""


def strip_controls(text: str) -> str:
    """Remove control characters, so that no text controls the terminal."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """Return a text on one line of limited length, without control characters."""
    return strip_controls(shorten(text, _MAX_TITLE_CHARS))


def fold_steps(final: FinalReply) -> str:
    """Return the line that stays of a turn's steps; "" without any."""
    calls = [step for step in final.steps if not step.id.startswith(NOTED_STEP)]
    if not calls:
        return ""
    stopped = final.state == "stopped" or any(step.state == "stopped" for step in calls)
    failed = all(step.state in ("failed", "denied") for step in calls)
    mark = ICONS["stopped" if stopped else "failed" if failed else "done"]
    return f"{mark} {count_steps(len(calls), calls, final.seconds)}"


def step_text(step: Step, *, with_detail: bool = True) -> str:
    """Return a step on one line, with its raw call unless that only repeats the title."""
    repeats = " ".join(step.detail.split()).casefold() == " ".join(step.title.split()).casefold()
    detail = f" — {step.detail}" if step.detail and with_detail and not repeats else ""
    return one_line(f"{ICONS[step.state]} {step_title(step)}{detail}")


def plan_head(items: Sequence[PlanItem]) -> str:
    """Return the line above the items of a plan, such as "Plan · 1 of 3 done"."""
    return _(PLAN_HEAD, done=sum(item.state == "done" for item in items), n=len(items))


def detail_lines(final: FinalReply) -> list[str]:
    """Return the plan and the steps of an ended turn, a line each."""
    plan = [f"  {ICONS[item.state]} {one_line(item.title)}" for item in final.plan]
    return [*([plan_head(final.plan)] if plan else []), *plan, *map(step_text, final.steps)]


def human_size(size: int) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]  # from here on it is a rounded figure
    return f"{size:.1f} GB"


class ConsoleHost:
    """The service around the console. This one does not have a service: nothing else runs."""

    def describe_channels(self) -> Sequence[tuple[str, bool]]:
        """Return a sentence for each other channel, and whether it is connected."""
        return ()

    def describe_leaving(self) -> str:
        """Return what a second Ctrl-C does on the console whose end stops the service."""
        return _("Press Ctrl-C again to leave.")

    def progress(self, thread: Thread) -> Progress | None:
        """Return how far the turn at this address is; None if none runs."""
        return None

    async def open_question(self, thread: Thread) -> Final | None:
        """Return the questions for which the conversation of this address waits, as they were asked."""
        return None

    async def wait_until_idle(self, thread: Thread) -> None:
        """Wait until everything that arrived at this address is answered and delivered."""


NO_HOST = ConsoleHost()
