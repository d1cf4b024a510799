"""Claim conversations, turn their pending messages into runs, end and release them.

The end of its turn releases a claim; where its process is dead, a start or a living process does
(`bot/database/replicas.py`). A claim has a fencing number; whatever ends a run checks it, so a worker that lost its
claim changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from agent.core.context import Answer
from agent.messages import Kind, Message, Thread
from agent.stored_json import Damaged
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute, StorageError, engine_savepoint, savepoint
from bot.database.states import ConversationState, InboxState, QuestionKind, RunState
from bot.journey import questions
from bot.journey.addressing import own_conversation
from bot.journey.claimed_store import ClaimLost
from bot.journey.gathering import bring_side_posts, bundle_key, merge_bundles, read_state
from bot.journey.questions import Answered, Binding, Effect, Given, Refused
from bot.rights.access import AccessPolicy
from bot.rights.claimed_run import ClaimedRun, RunEnding
from bot.rights.work_rights import affordable_rows, drop_unpermitted, hold_back
from bot.storage import (
    agents,
    calls,
    channels,
    conversations,
    exposures,
    inbox,
    languages,
    outbox,
    runs,
    sent_messages,
    transcripts,
)
from bot.storage import questions as stored_questions
from bot.storage.conversations import ConversationRow
from bot.storage.inbox import InboxRow
from bot.storage.runs import RunRow
from bot.storage.usage import RequestPart, request_parts, usage_of_run
from catalogue import N_, _
from channels.base import Receipt, SentMessage

log = logging.getLogger(__name__)

MAX_MESSAGES_PER_RUN = 50
MAX_QUEUED_PER_LOOK = 100  # conversations
TEXT_TIME_SECONDS = 1.0  # the precision of the platforms' times
DAMAGED = N_("I can't read a message that I stored for you: it was damaged on my side. Please send it again.")


def claim_conversations(
    execute: Execute, access: AccessPolicy, owner: str, now: float, longest: float, free: int
) -> list[ClaimedRun]:
    """Claim up to `free` conversations that have work, in turn by person, and take the messages that are ready.

    `longest` is the longest time (seconds) that a message may have to wait until it is ready.
    """
    for key in stored_questions.conversations_with_expired_questions(execute, now):
        _isolate_damage(execute, key, now, partial(questions.close_expired_questions, execute, key, now))
    keys = conversations.claimable_conversations(execute, owner, now, now + longest, free)
    return [job for key in keys if (job := _claim_conversation(execute, access, key, owner, now, longest))]


def _claim_conversation(
    execute: Execute, access: AccessPolicy, key: str, owner: str, now: float, longest: float
) -> ClaimedRun | None:
    if not (row := conversations.claim_conversation(execute, key, owner)):
        return None
    job = _isolate_damage(execute, key, now, lambda: _take_work(execute, access, row, now, longest))
    if not job:
        conversations.release_claim(execute, key, row.fence)
    return job


def _take_work(
    execute: Execute, access: AccessPolicy, row: ConversationRow, now: float, longest: float
) -> ClaimedRun | None:
    """Return the run that a claimed conversation continues or begins; None if there is nothing to do."""
    if run := _resume_run(execute, access, row, now):
        return run
    return _take_messages(execute, access, row, RunState.RUNNING, now, longest)


def count_suspects(execute: Execute) -> int:
    """Return how many runs may be what the process died of."""
    return runs.count_suspects(execute)


def claim_suspect(
    execute: Execute, access: AccessPolicy, owner: str, now: float, longest: float
) -> tuple[ClaimedRun | None, bool]:
    """Claim the next run that may be what the process died of; also return whether there was one."""
    key = runs.next_suspect(execute, owner)
    return (_claim_conversation(execute, access, key, owner, now, longest) if key else None), key is not None


def claim_at_once(
    execute: Execute, access: AccessPolicy, key: str, owner: str, now: float, longest: float
) -> ClaimedRun | None:
    """Claim a conversation in the transaction that stores its message. None: it waits for the next look.

    A fault undoes the claim and nothing else: the look meets it again, and deals with it.
    """
    try:
        with savepoint(execute, "claim"):
            if row := conversations.claim_at_once(execute, key, owner, now, now + longest):
                if job := _take_work(execute, access, row, now, longest):
                    return job
                conversations.refresh_pending(execute, key)
                conversations.release_claim(execute, key, row.fence)
                return None
    except Exception:  # the boundary of a claim: what it was for is stored in any case
        log.exception("claim.put_off conversation=%s", key)
    conversations.refresh_pending(execute, key)
    return None


def queue_conversations(
    execute: Execute, access: AccessPolicy, now: float, longest: float, patience: float
) -> list[ClaimedRun]:
    """Create queued runs for the conversations that have been ready for `patience` seconds."""
    rows = conversations.queueable_conversations(execute, now - patience, now + longest, MAX_QUEUED_PER_LOOK)
    take = partial(_take_messages, execute, access, state=RunState.QUEUED, now=now, longest=longest)
    made = [_isolate_damage(execute, row.key, now, partial(take, row)) for row in rows]
    return [job for job in made if job]


def _isolate_damage(execute: Execute, key: str, now: float, take: Callable[[], ClaimedRun | None]) -> ClaimedRun | None:
    """Return what `take` returns. A conversation that cannot be read does not block the others."""
    try:
        with engine_savepoint(execute, "damage"):
            job = take()
    except StorageError:
        raise  # a fault of the database, not of this conversation
    except Exception as error:  # the boundary of one conversation
        log.exception("claim.unreadable conversation=%s", key)
        bury_messages(execute, inbox.open_rows(execute, key), error, now)
        runs.fail_open_runs(execute, key, now)
        stored_questions.close_questions(execute, key)
        conversations.mark_dirty(execute, key)
        job = None
    if not job:  # only answers to closed questions, expired questions, or nothing that can be read
        conversations.refresh_pending(execute, key)
    return job


def bury_messages(execute: Execute, rows: Sequence[InboxRow], error: Exception, now: float) -> None:
    """Turn messages of one conversation that cannot be read into dead letters, and notify its chat once."""
    for row in rows:
        log.error("inbox.damaged row=%d reason=%s", row.id, error)
        inbox.set_state(execute, row.id, InboxState.DEAD, repr(error))
        audit.record(execute, AuditEvent(AuditKind.DEAD_LETTER, what={"id": f"in{row.id}", "kind": "message"}))
    if rows and (found := conversations.find_conversation(execute, rows[0].conversation)):
        outbox.enqueue_notice(execute, found.thread, _(DAMAGED), key=f"dead:in{rows[0].id}", now=now)


def _readable(execute: Execute, rows: Sequence[InboxRow], now: float) -> list[InboxRow]:
    """Return the rows that can be read. The others become dead letters."""
    kept = []
    for row in rows:
        try:
            _unused = row.message
        except Damaged as error:
            bury_messages(execute, [row], error, now)
        else:
            kept.append(row)
    return kept


def _ready_rows(rows: Sequence[InboxRow], now: float, longest: float) -> list[InboxRow]:
    """Return the rows before the first that must wait. A row never overtakes another.

    What is ready later than the longest legal wait was stored before the clock was set back: it waits no longer.
    """
    return list(takewhile(lambda row: row.ready <= now or row.ready > now + longest, rows))


def _resume_run(execute: Execute, access: AccessPolicy, row: ConversationRow, now: float) -> ClaimedRun | None:
    """Continue the run that a crash or a shutdown interrupted, or that was queued."""
    run = runs.resume_run(execute, row.key)
    if run is None:
        return None
    taken = [each for each in inbox.rows_of_run(execute, run.id) if not each.steered]
    posted = sent_messages.known_messages(execute, f"r{run.id}")
    readable = _readable(execute, taken, now)
    if run.attempt == 1:  # it waited for a place; the turn itself refuses its requester
        others = [each for each in readable if each.message.author.id != run.requester]
        dropped = {*others} - {*drop_unpermitted(execute, access, row.key, others, now)}
        readable = [each for each in readable if each not in dropped]
        runs.remove_people(execute, run.id, {each.message.author.id for each in dropped})
    _record_answers(execute, access, row, merge_bundles(readable), now)  # an older version did not record them
    return _claimed_run(execute, access, row, run, readable, posted)


def _take_messages(
    execute: Execute, access: AccessPolicy, row: ConversationRow, state: RunState, now: float, longest: float
) -> ClaimedRun | None:
    """Create a run of the messages that are ready. Answers to open questions come first, the rest in the next run."""
    pending = _readable(execute, inbox.pending_rows(execute, row.key, MAX_MESSAGES_PER_RUN), now)
    if row.state == ConversationState.WAITING and questions.has_open_question(execute, row.key):
        pending = _answerable(hold_back(execute, pending, now + longest))
    readable = drop_unpermitted(execute, access, row.key, pending, now)
    ready = _ready_rows(readable, now, longest)
    ready = affordable_rows(execute, access.budgets, ready[0].message.payer, ready, now) if ready else []
    ready += [each for each in readable[len(ready) :] if each.kind == Kind.CLICK]  # it answers whatever is before it
    messages = merge_bundles(ready)
    bindings = _record_answers(execute, access, row, messages, now)
    answers = any(isinstance(each, Answered) for each in bindings.values())
    taken = []
    for each in ready:
        message = messages[bundle_key(each)]
        match bindings[message.key]:
            case Answered():
                taken.append(each)
            case Effect.REQUEST:  # of the next run, where there are answers
                taken += [] if answers else [each]
            case Effect.ASIDE:
                _set_aside(execute, row, each, now)
            case Refused() as refused:
                _refuse(execute, message, refused, now)
                if refused.kept:
                    inbox.keep_row(execute, each.id)
                else:
                    inbox.set_state(execute, each.id, InboxState.DONE, "answers nothing")
            case Effect.DROPPED:
                inbox.set_state(execute, each.id, InboxState.DONE, "answers nothing")
    if not taken:
        return None
    return replace(start_run(execute, access, row, taken, state, now), resumed=answers)


def _refuse(execute: Execute, message: Message, refused: Refused, now: float) -> None:
    """Tell the author of a message why it answers nothing, once for all pieces of it."""
    key = f"refused:{message.key}"
    with languages.speak_to(execute, message.thread, message.author):
        outbox.enqueue_notice(execute, message.thread, str(refused), key=key, now=now, reply_to=message.id)


def _answerable(rows: Sequence[InboxRow]) -> list[InboxRow]:
    """Return the rows that may answer a question: not those that are kept until none is open."""
    return [row for row in rows if row.error != inbox.KEPT]


def _set_aside(execute: Execute, row: ConversationRow, each: InboxRow, now: float) -> None:
    """Move the words of a person who is not asked to their own conversation: they need not wait for the answer."""
    own = own_conversation(execute, row.key, each.message.author, now)
    inbox.move_row(execute, each.id, own)
    conversations.refresh_pending(execute, own)


def start_run(
    execute: Execute, access: AccessPolicy, row: ConversationRow, taken: Sequence[InboxRow], state: RunState, now: float
) -> ClaimedRun:
    """Create the run that answers `taken`."""
    messages = [each.message for each in taken]
    first, people = questions.attribute_request(execute, row.key, messages)
    first = replace(first, mode=next((each.mode for each in messages if each.mode), ""))
    run = runs.create_run(execute, taken[0].id, row.key, first, state, now, people)
    for each in taken:
        inbox.take_row(execute, each.id, run.id)
    return _claimed_run(execute, access, row, run, bring_side_posts(execute, row, taken))


def _claimed_run(
    execute: Execute,
    access: AccessPolicy,
    row: ConversationRow,
    run: RunRow,
    taken: Sequence[InboxRow],
    posted: Sequence[SentMessage] | None = None,
) -> ClaimedRun:
    messages = tuple(merge_bundles(taken).values())
    thread = Thread.parse(row.thread)
    requester = run.author
    people = dict.fromkeys((run.requester, *runs.people_of(run)))
    roles = {person: access.role_of(execute, thread, person) for person in people}
    role = roles[run.requester]
    chosen = agents.choices_of(execute, row, thread, run.requester)
    model = role.choose_model(chosen.model.model)
    fresh = run.attempt <= 1 and row.state == ConversationState.IDLE
    return ClaimedRun(
        conversation=row.key,
        thread=thread,
        fence=row.fence,
        run=run.id,
        attempt=run.attempt,
        deaths_alone=run.deaths_alone,
        requester=run.requester,
        language=languages.language_of(execute, thread, requester),
        started=run.started,
        reply_to=run.reply_to,
        reply_handle=channels.find_handle(execute, thread, run.reply_to),
        messages=messages,
        answers=questions.given_answers(execute, row.key) if row.state == ConversationState.WAITING else (),
        model=model,
        may_use_model=role.may_use_model,
        effort=chosen.model.effort if model == chosen.model.model else "",
        agent=role.choose_agent(chosen.agent),
        title=row.title,
        first=row.used == row.created,
        fresh=fresh,
        resumed=posted is not None,
        stop_by=run.stop_by,
        posted=tuple(posted or ()),
        role=role,
        roles=tuple(dict.fromkeys(roles[person] for person in runs.people_of(run))),
        exposure=exposures.find_exposure(execute, row.key),
        state=read_state(execute, row.key, fresh=fresh) if run.state == RunState.RUNNING else None,
    )


def _record_answers(
    execute: Execute, access: AccessPolicy, row: ConversationRow, messages: Mapping[str, Message], now: float
) -> dict[str, Binding]:
    """Bind messages to the questions that a conversation waits for, and record the answers. Raises Damaged."""
    if row.state != ConversationState.WAITING:
        return questions.bind((), messages.values(), {}, lambda _question, _message, _answer: False)
    return questions.record_answers(execute, access, row.key, messages.values(), now)


def find_pressed(
    execute: Execute, access: AccessPolicy, conversation: str, press: Message, now: float
) -> Given | Receipt:
    """Return the open question that a press answers, and the answer, or the receipt of a press without effect."""
    rows = _answerable(inbox.pending_rows(execute, conversation, MAX_MESSAGES_PER_RUN))
    pending = merge_bundles(_readable(execute, rows, now)).values()
    return questions.find_pressed(execute, access, conversation, press, pending, now)


def take_steering(
    execute: Execute, access: AccessPolicy, job: ClaimedRun, now: float, longest: float
) -> tuple[list[Message], bool]:
    """Take new messages into the running turn; also return whether pieces still wait for each other."""
    rows = inbox.steering_rows(execute, job.conversation, job.run, MAX_MESSAGES_PER_RUN)
    readable = drop_unpermitted(execute, access, job.conversation, _readable(execute, rows, now), now)
    ready = _ready_rows(readable, now, longest)
    taken = affordable_rows(execute, access.budgets, job.payer, ready, now)
    for row in taken:
        inbox.take_row(execute, row.id, job.run, steered=True)
    runs.add_people(execute, job.run, [person for row in taken for person in row.message.people])
    return list(merge_bundles(taken).values()), len(ready) < len(readable)


def take_answers(
    execute: Execute, access: AccessPolicy, job: ClaimedRun, asked: Collection[str], now: float, longest: float
) -> tuple[list[tuple[Answer, Message | None]], float | None]:
    """Take the messages that answer these questions of a running turn; each answer comes with its text message.

    Also returns when the next message will be complete.
    """
    open_ = [each for each in stored_questions.unresolved_questions(execute, job.conversation) if each.id in asked]
    since = min((question.asked for question in open_), default=now) - TEXT_TIME_SECONDS
    rows = inbox.pending_rows(execute, job.conversation, MAX_MESSAGES_PER_RUN)
    pending = _readable(execute, _answerable(rows), now)
    later = [row for row in pending if row.kind == Kind.CLICK or row.received >= since]  # earlier texts are no answers
    ready = _ready_rows(later, now, longest)
    messages = merge_bundles(ready)
    questions.record_answers(execute, access, job.conversation, messages.values(), now)
    texts = {message.key: message for message in messages.values() if message.kind is Kind.CHAT}
    approvals = {question.id for question in open_ if question.kind == QuestionKind.APPROVE}
    taken = []
    for answer in questions.given_answers(execute, job.conversation):
        if answer.id in asked:
            taken.append((answer, text := None if answer.id in approvals else texts.get(answer.key)))
            runs.add_people(execute, job.run, [text.author.id] if text else [])
            for row in ready:
                if messages[bundle_key(row)].key == answer.key:
                    inbox.take_row(execute, row.id, job.run, steered=True)
                    inbox.set_state(execute, row.id, InboxState.DONE, inbox.LIVE_ANSWER)
    return taken, next((row.ready for row in later[len(ready) :]), None)


def steered_messages(execute: Execute, job: ClaimedRun) -> list[Message]:
    """Return what `take_steering` has taken into the run."""
    rows = inbox.rows_of_run(execute, job.run)
    kept = (InboxState.NEW, InboxState.DONE)
    return list(merge_bundles([row for row in rows if row.steered and row.state in kept]).values())


def finish_run(execute: Execute, job: ClaimedRun, ending: RunEnding, now: float) -> Sequence[RequestPart]:
    """Record the end of a run and release its conversation; return the model calls of its request.

    Raises ClaimLost, which undoes the transaction, when another worker has claimed the conversation.
    """
    state = ConversationState.IDLE if ending.clean else ConversationState.DIRTY
    if ending.state is RunState.WAITING:
        state = ConversationState.WAITING
    inbox.finish_rows(execute, job.run)
    if not conversations.end_claim(execute, job.conversation, job.fence, state, title=ending.title, now=now):
        raise ClaimLost(job.conversation)
    if ending.asks or ending.asked or job.answers or job.resumed:
        answered = {answer.id for answer in job.answers}
        home, requester = job.thread, job.author
        questions.replace_questions(
            execute, job.conversation, ending.asks, answered, run=job.run, home=home, requester=requester, now=now
        )
    runs.finish_run(execute, job.run, ending.state, now)
    parts = request_parts(execute, job.run, job.conversation)
    used = usage_of_run(parts)
    what = {"attempt": job.attempt, "input": used.input, "output": used.output, "calls": used.calls}
    event = AuditEvent(AuditKind.TURN_ENDED, job.thread, job.requester, run=job.run, what=what, result=ending.state)
    event = replace(event, cost=sum(part.cost for part in parts if part.this))
    audit.record(execute, event)
    if ending.has_ledger or not job.fresh:
        calls.forget_calls(execute, job.conversation)
    if ending.state is not RunState.WAITING and (ending.has_steps or not job.fresh):  # an answer goes on with its steps
        transcripts.forget_steps(execute, job.conversation)
    return parts


def suspend_run(execute: Execute, job: ClaimedRun) -> None:
    """Leave a run to the next process; this attempt does not count."""
    runs.uncount_attempt(execute, job.run)
    conversations.interrupt_claim(execute, job.conversation, job.fence)


def release_stale_claims(execute: Execute) -> None:
    """Release the conversations and outbox rows of dead processes, and count their deaths."""
    runs.count_deaths(execute)
    conversations.release_stale_claims(execute)
    outbox.release_stale_rows(execute)
