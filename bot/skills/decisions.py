"""Ask operators about a new or changed skill: the difference, with a button to accept and one to decline; and which of
the skills of a repository they mean.

A press does what `/skills accept HASH` does, so that one place says what happened.

The skills of a turn, and what the agent proposes in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from agent.blocks import Ask, command_hint
from agent.core.context import TurnContext, join_parts
from agent.messages import Author, Message, Thread
from agent.permissions.invisible import show_line, show_literally
from agent.skills.changes import SkillChange, stage_files
from agent.skills.found import FoundSkill
from agent.skills.library import TurnSkills
from bot.commands.table import UNKNOWN, Pressed
from bot.commands.waits import Waiting
from bot.database.database import Database, Execute
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.deeds import CHANGE_SKILLS
from bot.rights.work_rights import allowed_skills
from bot.skills.sharing import SharedSkills
from bot.storage import languages, outbox
from catalogue import N_, _, join_sentences, ngettext
from channels.base import Receipt
from channels.shared.texts import shorten

MAX_SHOWN_CHARS = 2400  # of a difference, so that the question is one message on every platform
SHOWN_HASH_CHARS = 32
ACCEPT, DECLINE = N_("Accept"), N_("Decline")
OPTIONS = (ACCEPT, DECLINE)
PREFIX = "skill:"  # of the question's id, before the begin of the hash
NEW = N_("Shall I install the new skill `{name}`?")
CHANGED = N_("Shall I use this changed version of the skill `{name}`?")
WHICH = N_("There are {n} skills at {address}. Which one shall I install?")
OTHERS = N_("Press a button, or write `{command}`.")
MAX_CHOICES = 20  # as buttons
MAX_LINE_CHARS = 100
CHOICE = "one:"  # before the hash of an address, in place of that of a change
SHOWN_BY = N_("`{command}` shows what is in it.")
REST = N_("Not shown: {n} more characters. `{command}` shows all of it.")


@dataclass(frozen=True, slots=True)
class SkillChoice:
    """The skills of a repository, of which an operator chooses one; the hash stands for its address."""

    address: str
    hash: str
    found: tuple[FoundSkill, ...]


def enqueue_question(
    execute: Execute, change: SkillChange, place: Thread, reader: Author, key: str, now: float, reply_to: str = ""
) -> None:
    """Enqueue the question about a change, in the reader's language."""
    with languages.speak_to(execute, place, reader):
        words = _(NEW if change.is_new else CHANGED, name=change.name)
        text = f"{words}\n\n{render_diff(change.diff[:MAX_SHOWN_CHARS])}"
        if rest := len(change.diff) - MAX_SHOWN_CHARS if len(change.diff) > MAX_SHOWN_CHARS else 0:
            text += "\n\n" + _(REST, n=rest, command=command_hint(f"skills diff {change.name}"))
        id = f"{PREFIX}{change.hash[:SHOWN_HASH_CHARS]}"
        ask = Ask(id, text, tuple(map(_, OPTIONS)), free_text=False)
        outbox.enqueue_notice(execute, place, text, key=key, now=now, asks=(ask,), reply_to=reply_to)


def enqueue_choice(execute: Execute, message: Message, choice: SkillChoice, key: str, now: float) -> None:
    """Ask which of the skills of a repository to install, in the language of the author."""
    with languages.speak_to(execute, message.thread, message.author):
        lines = [f"- `{each.name}`: {show_line(shorten(each.description, MAX_LINE_CHARS))}" for each in choice.found]
        while len("\n".join(lines)) > MAX_SHOWN_CHARS:
            lines.pop()
        if rest := len(choice.found) - len(lines):
            lines.append(ngettext("and {n} more", "and {n} more", rest))
        which = _(WHICH, n=len(choice.found), address=choice.address)
        others = _(OTHERS, command=command_hint(f"skills install {choice.address} NAME"))
        text = "\n".join([which, "", *lines, "", others])
        names = tuple(dict.fromkeys(each.name for each in choice.found))[:MAX_CHOICES]
        ask = Ask(f"{PREFIX}{CHOICE}{choice.hash}", text, names, free_text=False)
        outbox.enqueue_notice(execute, message.thread, text, key=key, now=now, asks=(ask,), reply_to=message.id)


def render_diff(diff: str) -> str:
    """Return a difference as a block of code."""
    return show_literally(diff, language="diff")


def check_press(_execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press on a button that says neither a decision nor the name of a skill."""
    is_known = pressed.option != UNKNOWN or pressed.subject.startswith(CHOICE)
    return None if is_known else Receipt.DUPLICATE


def waiting_changes(execute: Execute, current: Current, viewer: Message, _now: float) -> Iterator[Waiting]:
    """Yield the changes of skills that wait, for an operator who may decide on them."""
    if current.skills is None or not current.access.may_do(execute, viewer.thread, viewer.author.id, CHANGE_SKILLS):
        return
    for digest, staged in current.skills.records().staged.items():
        words = join_sentences(
            _(CHANGED if staged.base else NEW, name=staged.name),
            _(SHOWN_BY, command=command_hint(f"skills diff {staged.name}")),
        )
        yield Waiting(viewer.thread, f"{PREFIX}{digest[:SHOWN_HASH_CHARS]}", words, OPTIONS)


PROPOSED = N_("I propose the skill `{name}`. An operator decides whether I may use it.")


async def add_skills(
    context: TurnContext, current: Current, store: Database, shared: SharedSkills, job: ClaimedRun
) -> None:
    """Give a turn the present skills: their list in its brief, and the right to propose others."""
    library, config = shared.library, current.config.skills
    await shared.wait_for_first_look()

    async def propose(name: str, files: Mapping[str, str]) -> None:
        """See `ProposeSkill`."""
        source = f"proposed in {job.thread} for {job.requester}"
        change = await shared.change(stage_files, name, files, source)
        await store.run(partial(_show_proposal, change=change, current=current, job=job))

    allow = allowed_skills(current.config, job.agent, job.role)
    since = None if job.resumed else job.started
    skills = TurnSkills(await library.refresh(since), allow, propose if config.evolution else None)
    context.skills = skills
    context.brief = join_parts(context.brief, skills.brief())


def _show_proposal(execute: Execute, change: SkillChange, current: Current, job: ClaimedRun) -> None:
    """Ask in the chat if its requester is an operator, else the operators in their private chats."""
    access, now, key = current.access, job.started, f"skill:{change.hash[:32]}:{job.run}"
    if access.may_do(execute, job.thread, job.requester, CHANGE_SKILLS):
        enqueue_question(execute, change, job.thread, Author(job.requester, ""), key, now)
        return
    with languages.speak_to(execute, job.thread, Author(job.requester, "")):
        outbox.enqueue_notice(execute, job.thread, _(PROPOSED, name=change.name), key=key, now=now)
    for person in access.reachable_operators(execute, console=True):
        if (place := person.private_chat) is None:
            continue
        each = f"{key}:{person.channel}:{person.person}"
        enqueue_question(execute, change, place, Author(person.person, person.name), each, now)
