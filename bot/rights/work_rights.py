"""Whether people may still have the agent work when it takes what they wrote, and what they are told if not.

The inbox checks a message when it arrives. It may wait: for a place, for the turn before it, or through a restart.

Choose the skills that an agent may use for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

from agent.blocks import command_hint
from agent.messages import Kind, Message
from bot.config.schema import Config
from bot.config.team import Right, RoleConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import InboxState
from bot.rights.access import AccessPolicy
from bot.rights.approvals import may_answer
from bot.rights.budgets import StandingBudgets
from bot.storage import inbox, languages, outbox
from bot.storage import questions as stored_questions
from bot.storage.inbox import InboxRow
from bot.storage.questions import QuestionRow
from catalogue import N_, _

REFUSAL_SECONDS = 60.0  # between two notices to a person who may not have the bot work
NOT_ALLOWED = "stranger"  # why an event was ignored
NO_WORK = N_(
    "Your role here is **{role}**, so I don't work for you. `{whoami}` shows what you may do; an operator can change it"
    " with `{access}`."
)
NO_ACCESS = N_("You no longer have access here, so I haven't worked on your message. An operator can give it back.")
LATE_ANSWER = N_(
    "Your answer doesn't count: your role changed before I could use it. The question is open again, for those who may"
    " answer it."
)


def describe_refusal(role: RoleConfig) -> str:
    """Say to a person of this role why the agent does not work for them."""
    if not role.name:
        return _(NO_ACCESS)
    return _(NO_WORK, role=role.name, whoami=command_hint("whoami"), access=command_hint("access"))


def refuse_work(execute: Execute, message: Message, role: RoleConfig, now: float) -> None:
    """Tell a person without the right TALK so, unless they were told just now."""
    key = f"refused-work:{message.thread.channel}:{message.author.id}:"
    if message.addressed and outbox.latest_notice(execute, key) <= now - REFUSAL_SECONDS:
        _notify_author(execute, message, partial(describe_refusal, role), f"{key}{message.key}", now)


def drop_unpermitted(
    execute: Execute, access: AccessPolicy, conversation: str, rows: Sequence[InboxRow], now: float
) -> list[InboxRow]:
    """Return the rows whose authors still have the rights for them now. The others are refused.

    A message needs the right TALK. An answer that was recorded when a button was pressed needs the right to give it;
    without it, its question is open again.
    """
    pressed = any(row.kind == Kind.CLICK for row in rows)
    questions = stored_questions.unresolved_questions(execute, conversation) if pressed else ()
    answered = {each.answer_key: each for each in questions}
    kept = []
    for row in rows:
        message = row.message
        question = answered.get(row.key) if message.kind is Kind.CLICK else None
        role = access.role_of(execute, message.thread, message.author.id)
        if question and not _may_have_answered(execute, access, question, message):
            stored_questions.reopen_question(execute, question)
            outbox.enqueue_settled(execute, question, now, cause=f"reopened {row.key}")
            _notify_author(execute, message, partial(_, LATE_ANSWER), f"late:{row.id}", now)
        elif message.kind is Kind.CHAT and Right.TALK not in role.rights:
            refuse_work(execute, message, role, now)
        else:
            kept.append(row)
            continue
        inbox.set_state(execute, row.id, InboxState.DONE, NOT_ALLOWED)
        record_refusal(execute, message)
    return kept


def _may_have_answered(execute: Execute, access: AccessPolicy, question: QuestionRow, press: Message) -> bool:
    """Return whether a press that was recorded still counts: by the rights of now, and the hand-overs of then that are
    not revoked."""
    at, answer = question.answered_at or 0.0, question.answer
    return may_answer(execute, access, question, press.thread, press.author.id, at=at, answer=answer)


def hold_back(execute: Execute, rows: Sequence[InboxRow], until: float) -> list[InboxRow]:
    """Let what cannot answer wait while a question is open: what nobody wrote, and requests by command."""
    held = [row for row in rows if row.kind == Kind.CHAT and not row.message.may_answer]
    for row in held:
        inbox.delay_row(execute, row.id, until)
    return [row for row in rows if row not in held]


def affordable_rows(
    execute: Execute, budgets: StandingBudgets, payer: str, rows: Sequence[InboxRow], now: float
) -> list[InboxRow]:
    """Return the rows before the first that another run must answer, because its budgets differ.

    A run is charged to its `payer`. Who has used up a budget does not work on that of another person,
    and nobody else's request is refused because of it.
    """
    budgets = budgets.of_persons
    if not budgets.budgets or all(row.message.payer == payer for row in rows):
        return [*rows]
    used_up: dict[str, bool] = {}

    def pays_together(row: InboxRow) -> bool:
        message = row.message
        for person in (payer, message.payer):
            if person not in used_up:
                used_up[person] = bool(budgets.find_used_up(execute, message.thread, person, now))
        return message.payer == payer or not (used_up[payer] or used_up[message.payer])

    return list(takewhile(pays_together, rows))


def record_refusal(execute: Execute, message: Message, reason: str = "") -> None:
    """Note in the audit that what a person wrote has no effect."""
    what = {"reason": reason} if reason else {}
    audit.record(execute, AuditEvent(AuditKind.ACCESS_DENIED, message.thread, message.author.id, what=what))


def _notify_author(execute: Execute, message: Message, notice: Callable[[], str], key: str, now: float) -> None:
    with languages.speak_to(execute, message.thread, message.author):
        outbox.enqueue_notice(execute, message.thread, notice(), key=key, now=now, reply_to=message.id)


def allowed_skills(config: Config, agent: str, role: RoleConfig) -> tuple[str, ...]:
    """Return the names of the skills that this named agent may use for a person of this role; empty: all."""
    allow = next((each.skills for each in config.agents if each.name == agent), ()) or config.skills.allow
    if role.skills:
        return tuple(name for name in role.skills if not allow or name in allow) or ("",)  # no skill has this name
    return allow
