"""Post what came to a hook, in the transaction that ends its job: as a message for the agent, or as a notice.

A message of a hook is one of its person, in a conversation of its own: the run that answers it has the rights of that
person at that moment. What the other system says is a quote in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.messages import Author, Message, Origin, Quote, Thread
from agent.stored_json import Damaged
from bot.config.hooks import HookConfig
from bot.config.team import Right
from bot.current import Current
from bot.hooks.bundling import WINDOW_SECONDS, Bundle, WaitingDelivery, bundle_due
from bot.hooks.events import HookEvent
from bot.hooks.senders import Item
from bot.hooks.words import describe_post, items_of, report, title_of
from bot.rights.access import AccessPolicy
from bot.rights.budget_limits import record_used_up
from bot.service.side_work import name_side_work, record_post
from bot.storage import audit, conversations, hooks, inbox, languages, outbox, people
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Execute
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.states import DeliveryState
from catalogue import N_, _

log = logging.getLogger(__name__)

HOOK_JOB = "hook"
NO_ACCESS = N_(
    "I don't work on it: {name}, for whom this hook has me work, may not do that here."
    " An operator can give them a role."
)


def enqueue_look(execute: Execute, hook: str, due: float = 0.0) -> None:
    """Have a worker look at what waits in a hook."""
    enqueue_job(execute, key=f"{HOOK_JOB}:{hook}", kind=HOOK_JOB, payload={"hook": hook}, due=due)


class HookJobs:
    """Posts what waits in hooks."""

    def __init__(self, current: Current) -> None:
        self._current = current

    async def post(self, job: BackgroundJob) -> Callable[[Execute], None] | None:
        """Handle a job: return what posts that which is due."""
        name = str(job.arguments["hook"])
        hook = self._current.config.hooks.get(name)
        if hook is None:
            log.warning("hook.unknown hook=%s", name)  # it was removed; what waits is posted when it is there again
            return None
        poster = HookPoster(self._current.access, name, hook, hook.target, time.time())
        return poster.post_due


@dataclass(frozen=True, slots=True)
class HookPoster:
    """Posts for one hook at one time."""

    access: AccessPolicy
    name: str
    hook: HookConfig
    place: Thread
    now: float

    def post_due(self, execute: Execute) -> None:
        """Post what is due, and look again when the next is."""
        rows = hooks.waiting_deliveries(execute, self.name)
        events = self._read_events(execute, rows)
        waiting = [WaitingDelivery(row.id, row.group_key, row.received) for row in rows if row.id in events]
        known = hooks.known_groups(execute, self.name, str(self.place), [each.subject for each in waiting])
        posted = hooks.latest_posts(execute, self.name, self.now - WINDOW_SECONDS)
        due, later = bundle_due(
            waiting,
            known,
            posted,
            self.now,
            gather_seconds=self.hook.gather_seconds,
            per_minute=self.hook.per_minute,
        )
        author = self._author(execute)
        with languages.speak_to(execute, self.place, author):
            for bundle in due:
                together = [events[id] for id in bundle.deliveries]
                self._post(execute, author, bundle, together, known.get(bundle.subject, ""))
        if later is not None or (due and len(rows) == hooks.MAX_WAITING):
            enqueue_look(execute, self.name, later or 0.0)

    def _read_events(self, execute: Execute, rows: Sequence[hooks.DeliveryRow]) -> dict[int, HookEvent]:
        """Return what can be read of deliveries. What was damaged does not hold up the others."""
        events = dict[int, HookEvent]()
        for row in rows:
            try:
                events[row.id] = HookEvent.load(row.event)
            except Damaged as error:
                log.error("hook.damaged hook=%s id=%d reason=%s", self.name, row.id, error)  # noqa: TRY400 — enough
                hooks.mark_posted(execute, [row.id], DeliveryState.DAMAGED, "", self.now)
        return events

    def _author(self, execute: Execute) -> Author:
        found = people.find_person(execute, self.place.channel, self.hook.person)
        return Author(self.hook.person, found.name if found and found.name else self.hook.person)

    def _post(self, execute: Execute, author: Author, bundle: Bundle, events: Sequence[HookEvent], known: str) -> None:
        """Post a bundle in its conversation, which is `known` or begins now."""
        first, items = bundle.deliveries[0], items_of(events)
        conversation = known or f"hook:{first}"
        conversations.place_conversation(execute, conversation, self.place, title_of(self.name, items), self.now)
        for subject in bundle.subjects:
            hooks.store_group(execute, self.name, str(self.place), subject, conversation, self.now)
        ended = [event for event in events if event.is_resolved]
        message = self._message(
            execute, author, first, events, hooks.noticed_deliveries(execute, self.name, conversation)
        )
        state = DeliveryState.NOTICED
        if len(ended) == len(events) or not self.hook.prompt:
            self._say(execute, conversation, items, f"{message.key}:said")
        elif why := self._refusal(execute, message):
            self._say(execute, conversation, items, f"{message.key}:said", why)
        else:
            state = DeliveryState.POSTED
            self._begin_run(execute, conversation, message)
            if ended:
                self._say(execute, conversation, items_of(ended), f"{message.key}:ended")
        hooks.mark_posted(execute, bundle.deliveries, state, conversation, self.now)
        what: dict[str, int | str] = {"hook": self.name, "deliveries": len(events), "items": len(items)}
        event = AuditEvent(AuditKind.HOOK_TAKEN, self.place, author.id, what=what, result=state)
        audit.record(execute, event)
        log.info("hook.%s hook=%s deliveries=%d items=%d", state, self.name, len(events), len(items))

    def _message(
        self,
        execute: Execute,
        author: Author,
        first: int,
        events: Sequence[HookEvent],
        before: Sequence[hooks.DeliveryRow],
    ) -> Message:
        """Return the message of a bundle, with what was only posted since the last one."""
        known = people.find_person(execute, self.place.channel, author.id)
        private = known is not None and known.private_chat == self.place.without_topic
        earlier = self._read_events(execute, before).values()
        everything = [*earlier, *events]
        sender = ", ".join(dict.fromkeys(event.sender for event in everything))
        count = len(items_of(events))
        text = f"{self.hook.prompt}\n\n[Hook {self.name}, {count} new item{'s' if count != 1 else ''}]"
        quotes = (Quote(sender, report(items_of(everything)), "hook"),)
        key = f"hook:{self.name}:{first}"
        return Message(self.place, key, "", author, text, self.now, private=private, quotes=quotes, origin=Origin.HOOK)

    def _refusal(self, execute: Execute, message: Message) -> str:
        """Return why the agent does not work on it; "" if it does."""
        place, author = message.thread, message.author
        if not (self.access.may_enter(execute, message) and self.access.may(execute, place, author.id, Right.TALK)):
            return _(NO_ACCESS, name=author.name)
        used_up = self.access.budgets.find_used_up(execute, place, author.id, self.now)
        if used_up:
            record_used_up(execute, used_up, place, author.id, "hook")
            return self.access.budgets.describe_used_up(used_up)
        return ""

    def _begin_run(self, execute: Execute, conversation: str, message: Message) -> None:
        """Store the message that a run answers; the conversation gets what was only posted in it."""
        inbox.store_message(execute, message, conversation, ready=self.now, received=self.now)
        rows = hooks.noticed_deliveries(execute, self.name, conversation)
        hooks.bring_noticed(execute, [row.id for row in rows])
        conversations.refresh_pending(execute, conversation)

    def _say(self, execute: Execute, conversation: str, items: Sequence[Item], key: str, why: str = "") -> None:
        """Post what was reported as it is; the chat's own conversation gets it with its next message."""
        words = describe_post(self.name, items, why)
        outbox.enqueue_notice(execute, self.place, words, key=key, now=self.now, conversation=conversation)
        row = conversations.find_conversation(execute, conversation)
        work = name_side_work(conversation, row.title if row else self.name)
        record_post(execute, self.place, conversation, work, self.hook.person, words, key, self.now)
