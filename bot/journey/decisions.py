"""Presses of buttons that the bot itself handles: what each stands for, and whether the person may decide it."""

from __future__ import annotations

from agent.messages import Kind, Message
from bot.privacy.command import decision_command as decide_forgetting
from bot.rights import deeds
from bot.rights.access import AccessPolicy
from bot.rights.deeds import Decision
from bot.rights.work_rights import record_refusal
from bot.schedules.proposals import decision_command as decide_schedule
from bot.skills.decisions import decision_command as decide_skill
from bot.storage.database import Execute
from channels.base import Receipt


def decision_of(event: Message) -> Decision | None:
    """Return what a press decides; None for another event."""
    if event.kind is not Kind.CLICK:
        return None
    return next((each for each in Decision if event.target.startswith(each)), None)


def may_decide(execute: Execute, access: AccessPolicy, click: Message, decision: Decision) -> bool:
    """Return whether the person has the right to decide this; a refusal is noted in the audit."""
    deed = {Decision.PAIRING: deeds.DECIDE_PAIRING, Decision.SKILL: deeds.CHANGE_SKILLS}.get(decision)
    may = deed is None or access.may_do(execute, click.thread, click.author.id, deed)
    if not may:
        record_refusal(execute, click)
    return may


def command_of(execute: Execute, click: Message, decision: Decision) -> Message | Receipt:
    """Return the command that a press stands for, or the receipt of one without effect."""
    match decision:
        case Decision.SKILL:
            return decide_skill(click)
        case Decision.SCHEDULE:
            decided = decide_schedule(execute, click)
        case _forgetting:
            decided = decide_forgetting(click) or Receipt.IGNORED
    if decided is Receipt.IGNORED:  # it is another person's question
        record_refusal(execute, click)
    return decided
