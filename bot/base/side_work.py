"""Name what works beside the conversation of a thread: a background task, a schedule, a person's own conversation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.blocks import spell_commands
from agent.messages import Thread
from bot.base.plain_text import plain_line
from bot.database import audit
from bot.database.database import Execute
from bot.storage import conversations
from bot.storage.overheard import SidePost, is_beside, record_side_post
from catalogue import N_, _

_NUMBERED = re.compile(r"(task|schedule|hook):([0-9]+)(?:\.[0-9]+)?$")
NAMES = {
    "task": N_("Task {number} “{title}”"),
    "schedule": N_("Schedule {number} “{title}”"),
    "hook": N_("Hook “{title}”"),
    "": N_("What we talk about here"),
}


@dataclass(frozen=True, slots=True)
class SideWork:
    """A kind of work ("task", "schedule", "hook"; "" for talk with a person), its number and its title."""

    kind: str
    number: int = 0
    title: str = ""

    @property
    def origin(self) -> str:
        """The work as the model reads it."""
        return f"{self.kind} {self.number} “{self.title}”" if self.kind else f"talk with a person “{self.title}”"

    @property
    def label(self) -> str:
        """The work as people read it."""
        return _(NAMES[self.kind], number=self.number, title=self.title)


def name_side_work(conversation: str, title: str) -> SideWork:
    """Return the work of a conversation; that of the thread's own conversation has no kind."""
    found = _NUMBERED.match(conversation)
    title = plain_line(title)
    return SideWork(found[1], int(found[2]), title) if found else SideWork("", title=title)


def record_posted(execute: Execute, conversation: str, person: str, text: str, *, key: str, now: float) -> None:
    """Keep what a conversation beside the thread's one posts, in the transaction that enqueues it."""
    row = conversations.find_conversation(execute, conversation) if is_beside(conversation) else None
    if row and text:
        thread = Thread.parse(row.thread)
        record_post(execute, thread, conversation, name_side_work(conversation, row.title), person, text, key, now)


def record_post(
    execute: Execute, thread: Thread, conversation: str, work: SideWork, person: str, text: str, key: str, now: float
) -> None:
    """Keep what was posted in a thread beside its conversation."""
    whom = audit.person_name(thread.channel, person)
    said = spell_commands(text, lambda command: f"/{command}")
    record_side_post(execute, SidePost(key, str(thread), conversation, whom, work.origin, said, now))
