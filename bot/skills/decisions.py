"""Ask operators about a new or changed skill: the difference, with a button to accept and one to decline.

A press is a command, `skills accept NAME HASH`, so that one place decides who may and says what happened.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agent.blocks import Ask, command_hint
from agent.messages import Author, Kind, Message, Thread
from agent.skills.changes import SkillChange
from bot.rights.deeds import Decision
from bot.storage import languages, outbox
from bot.storage.database import Execute
from catalogue import N_, _, every_translation

MAX_SHOWN_CHARS = 2400  # of a difference, so that the question is one message on every platform
SHOWN_HASH_CHARS = 32
ACCEPT, DECLINE = N_("Accept"), N_("Decline")
NEW = N_("Shall I install the new skill `{name}`?")
CHANGED = N_("Shall I use this changed version of the skill `{name}`?")
REST = N_("Not shown: {n} more characters. `{command}` shows all of it.")


def enqueue_question(
    execute: Execute, change: SkillChange, place: Thread, reader: Author, key: str, now: float, reply_to: str = ""
) -> None:
    """Enqueue the question about a change, in the reader's language."""
    with languages.speak_to(execute, place, reader):
        words = _(NEW if change.is_new else CHANGED, name=change.name)
        text = f"{words}\n\n{render_diff(change.diff[:MAX_SHOWN_CHARS])}"
        if rest := len(change.diff) - MAX_SHOWN_CHARS if len(change.diff) > MAX_SHOWN_CHARS else 0:
            text += "\n\n" + _(REST, n=rest, command=command_hint(f"skills diff {change.name}"))
        id = f"{Decision.SKILL}{change.hash[:SHOWN_HASH_CHARS]}"
        ask = Ask(id, text, (_(ACCEPT), _(DECLINE)), free_text=False)
        outbox.enqueue_notice(execute, place, text, key=key, now=now, asks=(ask,), reply_to=reply_to)


def render_diff(diff: str) -> str:
    """Return a difference as a block of code that its content cannot end."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", diff))])
    return f"{fence}diff\n{diff}\n{fence}"


def decision_command(click: Message) -> Message:
    """Return the command that a press stands for."""
    verb = "accept" if click.text in every_translation(ACCEPT) else "decline"
    text = f"skills {verb} {click.target.removeprefix(Decision.SKILL)}"
    return replace(click, kind=Kind.COMMAND, text=text, target="")
