"""Whose approval a call needs, where they are asked, and who may answer a question now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from agent.blocks import ALLOW_HERE, ALWAYS_ALLOW, CALL_FILE_NAME, Approve, Ask
from agent.messages import Author, Thread
from agent.permissions.rules import ToolUse, judge, parse_rules
from bot.config.addresses import parse_chat
from bot.config.team import ApprovalRule, Right, RoleConfig, TeamConfig
from bot.database.database import Execute
from bot.database.states import QuestionKind
from bot.rights.access import AccessPolicy
from bot.rights.known_people import call_person
from bot.storage import conversations, hand_overs, inbox, languages, outbox, runs
from bot.storage.hand_overs import HandOverRow
from bot.storage.questions import QuestionRow
from catalogue import N_, _, every_translation, list_items

FOR_THE_FUTURE = (ALLOW_HERE, ALWAYS_ALLOW)  # the options of an approval that allow more than its call
ANY_ROLE = "*"  # in place of the roles that may approve: every role with the right APPROVE_OTHERS
ASKED_ROLES = N_("Only people with one of these roles may approve this: {roles}.")
ASKED_OTHERS = N_("Somebody who may approve for others has to approve this.")
ASKED_IN = N_("I have asked in the chat `{chat}`, too.")
UNREACHED = N_(
    "⚠️ I could not ask in the chat `{chat}`. People who may approve this can do so here. An operator can change the"
    " chat: `team.approvals` in the configuration."
)
ELSEWHERE = N_("{name} needs an approval in the chat `{chat}`.")


@dataclass(frozen=True, slots=True)
class RoutedApproval(Approve):
    """An approval that others decide: who has one of the roles `approvers`, except `barred`; also asked in `chat`."""

    approvers: tuple[str, ...] = ()
    barred: str = ""
    chat: Thread | None = None


def find_approval_rule(team: TeamConfig, use: ToolUse | None) -> ApprovalRule | None:
    """Return the first entry of `team.approvals` with this call; None for none."""
    if use is None:
        return None
    quiet = replace(use, default="allow")
    return next((rule for rule in team.approvals if judge(parse_rules(ask=rule.calls), quiet).verdict == "ask"), None)


def route_approval(approve: Approve, rule: ApprovalRule, requester: str) -> RoutedApproval:
    """Return the approval as others than the requester get it."""
    chat = parse_chat(rule.chat) if rule.chat else None
    told = [_(ASKED_ROLES, roles=list_items(f"**{role}**" for role in rule.roles)) if rule.roles else _(ASKED_OTHERS)]
    told += [_(ASKED_IN, chat=rule.chat)] if chat else []
    values = {field.name: getattr(approve, field.name) for field in fields(approve)}
    values["detail"] = "\n\n".join(filter(None, (" ".join(told), approve.detail)))
    barred = "" if rule.requester else requester
    return RoutedApproval(**values, approvers=rule.roles or (ANY_ROLE,), barred=barred, chat=chat)


def has_approver_role(role: RoleConfig, approvers: Sequence[str]) -> bool:
    """Return whether a role is one of those that may approve."""
    return role.name in approvers or (ANY_ROLE in approvers and Right.APPROVE_OTHERS in role.rights)


def may_approve(role: RoleConfig, rule: ApprovalRule | None, *, is_requester: bool) -> bool:
    """Return whether what a person of this role allowed for the future covers a call under this rule."""
    if rule is None:
        return not {Right.APPROVE, Right.APPROVE_OTHERS}.isdisjoint(role.rights)
    return has_approver_role(role, rule.roles or (ANY_ROLE,)) and (rule.requester or not is_requester)


def may_answer(
    execute: Execute,
    access: AccessPolicy,
    question: QuestionRow,
    place: Thread,
    person: str,
    *,
    at: float,
    answer: str = "",
) -> bool:
    """Return whether a person may give this answer ("": any) to a question at this time. The only place that decides.

    `place` is where they answer: their role there counts. A deputy may allow nothing for the future.
    """
    if _is_asked(question, person) and _has_right(execute, access, question, place, person):
        return True
    if question.kind == QuestionKind.APPROVE and any(answer in every_translation(each) for each in FOR_THE_FUTURE):
        return False
    return find_hand_over(execute, access, question, place, person, at) is not None


def find_hand_over(
    execute: Execute, access: AccessPolicy, question: QuestionRow, place: Thread, person: str, at: float
) -> HandOverRow | None:
    """Return what was handed over to a person by which they answer: its giver may answer, too, by their own right.

    What was not named is no question of the giver's direct chat: it stays between them and the bot.
    """
    for row in hand_overs.of_deputy(execute, place.channel, person, at):
        if row.subject not in (question.subject, hand_overs.EVERYTHING):
            continue
        if not may_stand_in(execute, access, question, place, giver=row.giver, deputy=person):
            continue
        if row.subject or not inbox.is_direct(execute, question.conversation, f"{row.channel}:{row.giver}"):
            return row
    return None


def may_stand_in(
    execute: Execute, access: AccessPolicy, question: QuestionRow, place: Thread, *, giver: str, deputy: str
) -> bool:
    """Return whether a question can be handed over: it is the giver's, and both have the right to answer it."""
    return _is_asked(question, giver) and all(
        _has_right(execute, access, question, place, each) for each in (giver, deputy)
    )


def _is_asked(question: QuestionRow, person: str) -> bool:
    """Return whether a question is not for certain others."""
    return bool(question.approvers) or not question.who or person in question.who.split()


def _has_right(execute: Execute, access: AccessPolicy, question: QuestionRow, place: Thread, person: str) -> bool:
    """Return whether a person has the role that such an answer needs."""
    role = access.role_of(execute, place, person)
    if question.approvers:
        return has_approver_role(role, question.approvers.split("\n")) and not _is_barred(execute, question, person)
    return (Right.APPROVE if question.kind == QuestionKind.APPROVE else Right.TALK) in role.rights


def _is_barred(execute: Execute, question: QuestionRow, person: str) -> bool:
    """Return whether a person asked for this call: as the requester, or with a later message that the run answers."""
    run = runs.find_run(execute, question.run) if question.barred else None
    return bool(question.barred) and person in {question.barred, *(runs.people_of(run) if run else ())}


def report_unreached(execute: Execute, chat: Thread, run: int, now: float) -> None:
    """Say where a run was asked for that the other chat could not be asked."""
    found = runs.find_run(execute, run)
    if found is None or (row := conversations.find_conversation(execute, found.conversation)) is None:
        return
    home = Thread.parse(row.thread)
    with languages.speak_to(execute, home, found.author):
        words = _(UNREACHED, chat=f"{chat.channel}/{chat.workspace}/{chat.chat}")
        key = f"ask:{run}:unreached:{chat}"
        outbox.enqueue_notice(execute, home, words, key=key, now=now, reply_to=found.reply_to)


def question_columns(ask: Ask | Approve, requester: str) -> dict[str, str]:
    """Return the columns that say who may answer: an approval the requester, unless others do; a question everybody,
    or the requester if it is personal."""
    if not isinstance(ask, RoutedApproval):
        return {
            "who": requester if isinstance(ask, Approve) or ask.personal else "",
            "approvers": "",
            "barred": "",
            "asked_in": "",
        }
    chat = str(ask.chat.without_topic) if ask.chat else ""
    return {"who": "", "approvers": "\n".join(ask.approvers), "barred": ask.barred, "asked_in": chat}


def send_long_call(execute: Execute, ask: Ask | Approve, thread: Thread, *, key: str, now: float) -> None:
    """Enqueue the file with the exact call, which the question of this `key` names, if it does not show the call."""
    if isinstance(ask, Approve) and ask.has_long_call:
        outbox.enqueue_text_file(execute, thread, CALL_FILE_NAME, ask.call, key=f"{key}:call", now=now)


def ask_elsewhere(execute: Execute, ask: Ask | Approve, home: Thread, run: int, requester: Author, now: float) -> None:
    """Enqueue the approval in the other chat that is asked. A second one for this run is not enqueued."""
    if not isinstance(ask, RoutedApproval) or ask.chat is None:
        return
    if ask.chat.without_topic == home.without_topic:
        return
    with languages.speak_to(execute, ask.chat, Author("", "")):
        chat = f"{home.channel}/{home.workspace}/{home.chat}"
        about = _(ELSEWHERE, name=call_person(execute, home.channel, requester.id, requester.name), chat=chat)
        shown = replace(ask, detail="").to_question()
        shown = replace(shown, question=f"{about}\n\n{shown.question}")
        key = f"ask:{run}:{ask.id}:elsewhere"
        send_long_call(execute, ask, ask.chat, key=key, now=now)
        outbox.enqueue_notice(execute, ask.chat, shown.question, key=key, now=now, asks=(shown,), run=run)
