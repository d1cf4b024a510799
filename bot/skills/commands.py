"""`/skills`, and `/NAME request` for a skill. What reads or writes many files becomes a background job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agent.blocks import command_hint
from agent.messages import Kind
from agent.skills.library import InstalledSkill, SkillSet
from agent.skills.skill import SkillError
from bot.commands.call import Command, CommandCall
from bot.commands.outcome_texts import describe_skills
from bot.commands.table import Pressed
from bot.commands.work import describe_waiting, start_over_hint
from bot.database.states import ConversationState
from bot.rights import deeds
from bot.rights.current import Current
from bot.rights.work_rights import allowed_skills
from bot.skills.decisions import ACCEPT, CHOICE, OPTIONS
from bot.skills.jobs import enqueue_change
from bot.skills.listing import enqueue_list
from bot.storage import conversations, inbox
from catalogue import N_, _, join_sentences, localized
from channels.base import CommandInfo
from channels.shared.texts import shorten

BEGUN = N_("I'm getting the skill and checking it.")
MAX_LISTED_CHARS = 60  # in the list of commands
ACTIONS = ("enable", "disable", "diff", "accept", "decline", "rollback")
SKILLS_WORDS = "stats | enable | disable | diff | accept | rollback NAME, install URL"


def skills_command(call: CommandCall) -> str:
    """List the skills, or have an operator's change made."""
    action, *words = call.words.split()[:3] or [""]
    if not action:
        enqueue_list(call, _shown_skills(call))
        return ""
    if action == "stats":
        return describe_skills(call, _shown_skills(call))
    if not call.may(deeds.CHANGE_SKILLS):
        return call.refuse("skills", deeds.CHANGE_SKILLS)
    if action == "install" and (words or call.message.attachments):
        address, wanted = [*words, "", ""][:2]
        enqueue_change(call, action, address, wanted)
        return _(BEGUN)
    if action in ACTIONS and words:
        enqueue_change(call, action, words[0])
        return ""
    return _(
        "Use `{install}`, or send it with an archive. `{enable}`, `{disable}`, `{diff}`, `{accept}` and `{rollback}`"
        " change an installed skill. `{stats}` says how they did.",
        install=command_hint("skills install https://host/repository"),
        enable=command_hint("skills enable NAME"),
        disable=command_hint("skills disable NAME"),
        diff=command_hint("skills diff NAME"),
        accept=command_hint("skills accept NAME"),
        rollback=command_hint("skills rollback NAME"),
        stats=command_hint("skills stats"),
    )


def _shown_skills(call: CommandCall) -> dict[str, InstalledSkill]:
    """Return the skills that the person may use here, by name."""
    current = call.current.skills.current if call.current.skills else SkillSet()
    allow = allowed_skills(call.current.config, call.here.agent, call.role)
    return {name: each for name, each in current.skills.items() if not allow or name in allow}


def answer_press(call: CommandCall, pressed: Pressed) -> str:
    """Have the change made, or declined, that an operator decided on."""
    if not call.may(deeds.CHANGE_SKILLS):
        return call.refuse("skills", deeds.CHANGE_SKILLS)
    if pressed.subject.startswith(CHOICE):  # the label is the name of a skill
        enqueue_change(call, "install", pressed.subject, pressed.label)
        return _(BEGUN)
    enqueue_change(call, "accept" if OPTIONS[pressed.option] == ACCEPT else "decline", pressed.subject)
    return ""


class SkillCommands:
    """The installed skills as commands: `/NAME request` starts a turn with it."""

    def find(self, current: Current, name: str) -> Command | None:
        """Return the command of a skill."""
        found = current.skills.current.find(name) if current.skills else None
        if found is None:
            return None
        run = partial(_request_skill, name=name)
        return Command(name, found.skill.description, run, "REQUEST", begins_work=lambda _words: True)

    def listed(self, current: Current) -> list[CommandInfo]:
        """Return the skills that may be used."""
        usable = current.skills.current.usable(current.config.skills.allow) if current.skills else ()
        return [CommandInfo(skill.name, shorten(skill.description, MAX_LISTED_CHARS), "REQUEST") for skill in usable]


def _request_skill(call: CommandCall, name: str) -> str:
    """Enqueue a request for the skill of this name, and return the answer ("": the turn gives it)."""
    library = call.current.skills
    if library is None:
        return ""
    try:
        skill = library.current.require(name, allowed_skills(call.current.config, call.here.agent, call.role))
    except SkillError as error:
        return localized(error)
    if not call.may(deeds.HAVE_WORK):
        return call.refuse(name, deeds.HAVE_WORK)
    if call.here.state == ConversationState.WAITING and (waiting := describe_waiting(call)):
        return join_sentences(waiting, start_over_hint())
    message = replace(
        call.message, key=f"skill:{call.message.key}", kind=Kind.CHAT, text=call.words, skill=skill.name, time=call.now
    )
    inbox.store_message(call.execute, message, call.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, call.conversation)
    return ""
