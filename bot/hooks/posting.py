"""Post what came to a hook, in the transaction that ends its job: as a message for the agent, or as a notice.

A message of a hook is one of its person, in a conversation of its own: the run that answers it has the rights of that
person at that moment. What the other system says is a quote in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.messages import Author, Message, Origin, Quote, Thread
from agent.stored_json import Damaged
from bot.base.side_work import name_side_work, record_post
from bot.config.hooks import HookConfig
from bot.config.team import Right
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import DeliveryState
from bot.hooks.events import HookEvent, describe_post, items_of, report, title_of
from bot.hooks.grouping import WINDOW_SECONDS, Bundle, bundle_due, settle_roots, sort_waiting
from bot.hooks.senders import Item
from bot.rights.access import AccessPolicy
from bot.rights.budgets import record_used_up
from bot.rights.current import Current
from bot.storage import conversations, hooks, inbox, languages, outbox, people
from bot.storage.hooks import GroupRow
from bot.storage.jobs import BackgroundJob, enqueue_job
from catalogue import N_, _
from channels.base import Channel, ThreadBeginner

log = logging.getLogger(__name__)

HOOK_JOB = "hook"
CHANNEL_SECONDS = 1.0  # between looks whether a channel is connected
ROOT_SECONDS, MAX_ROOT_SECONDS = 0.25, 10.0  # between looks whether the first post of a thread is delivered
NO_ACCESS = N_(
    "I don't work on it: {name}, for whom this hook has me work, may not do that here."
    " An operator can give them a role."
)


def enqueue_look(execute: Execute, hook: str, due: float = 0.0) -> None:
    """Have a worker look at what waits in a hook."""
    enqueue_job(execute, key=f"{HOOK_JOB}:{hook}", kind=HOOK_JOB, payload={"hook": hook}, due=due)


class HookJobs:
    """Posts what waits in hooks. `channel` finds a connected channel by name."""

    def __init__(self, current: Current, channel: Callable[[str], Channel | None]) -> None:
        self._current = current
        self._channel = channel

    async def post(self, job: BackgroundJob) -> Callable[[Execute], None] | None:
        """Handle a job: return what posts that which is due."""
        name, now = str(job.arguments["hook"]), time.time()
        hook = self._current.config.hooks.get(name)
        if hook is None:
            log.warning("hook.unknown hook=%s", name)  # it was removed; what waits is posted when it is there again
            return None
        channel = self._channel(hook.target.channel)
        if channel is None:  # whether it begins threads is known when it is connected
            return partial(enqueue_look, hook=name, due=now + CHANNEL_SECONDS)
        begins_threads = isinstance(channel, ThreadBeginner) and channel.begins_threads(hook.target)
        return HookPoster(self._current.access, name, hook, hook.target, now, begins_threads).post_due


@dataclass(frozen=True, slots=True)
class HookPlace:
    """Where a bundle is posted: a thread, and its conversation. `work` is the bundle's own name beside it.

    `own`: the thread began at the first post of its group. `is_shown`: that post shows the bundle already.
    """

    thread: Thread
    conversation: str
    work: str
    own: bool = False
    is_shown: bool = False


@dataclass(frozen=True, slots=True)
class HookPoster:
    """Posts for one hook at one time. `begins_threads`: a group gets a thread below its first post."""

    access: AccessPolicy
    name: str
    hook: HookConfig
    place: Thread
    now: float
    begins_threads: bool = False

    def post_due(self, execute: Execute) -> None:
        """Post what is due, and look again when the next is."""
        opening = settle_roots(execute, self.name)
        rows = hooks.waiting_deliveries(execute, self.name)
        events = self._read_events(execute, rows)
        readable = [row for row in rows if row.id in events]
        groups = hooks.known_groups(execute, self.name, str(self.place), [row.group_key for row in readable])
        sorted_ = sort_waiting(readable, groups)
        posted = hooks.latest_posts(execute, self.name, self.now - WINDOW_SECONDS)
        due, later = bundle_due(
            sorted_.waiting,
            sorted_.homes,
            posted,
            self.now,
            gather_seconds=self.hook.gather_seconds,
            per_minute=self.hook.per_minute,
        )
        author, subjects = self._author(execute), {row.id: row.group_key for row in readable}
        with languages.speak_to(execute, self.place, author):
            for ids in sorted_.shown:
                self._post(execute, author, ids, events, groups[subjects[ids[0]]])
            for bundle in due:
                known = sorted_.homes.get(bundle.subject)
                for subject in {subjects[id] for id in bundle.deliveries} if known else ():
                    hooks.use_group(execute, self.name, str(self.place), subject, self.now)
                if known or not self._may_begin_thread(execute, author):
                    self._post(execute, author, bundle.deliveries, events, known, bundle.subjects)
                else:
                    self._begin_thread(execute, bundle, events)
                    opening = opening or self.now
        waits = [later] if later is not None else []
        waits += [0.0] if (due or sorted_.shown) and len(rows) == hooks.MAX_WAITING else []
        if opening:
            waits.append(self.now + min(MAX_ROOT_SECONDS, max(ROOT_SECONDS, (self.now - opening) / 4)))
        if waits:
            enqueue_look(execute, self.name, min(waits))

    def _may_begin_thread(self, execute: Execute, author: Author) -> bool:
        return self.begins_threads and not self.place.topic and not self._is_private(execute, author.id)

    def _begin_thread(self, execute: Execute, bundle: Bundle, events: Mapping[int, HookEvent]) -> None:
        """Post a bundle; the agent works on it below that post, as soon as the platform has it."""
        first, last = bundle.deliveries[0], bundle.deliveries[-1]
        root = f"hook:{self.name}:{first}:root"
        words = self._describe(items_of([events[id] for id in bundle.deliveries]))
        outbox.enqueue_notice(execute, self.place, words, key=root, now=self.now)
        for subject in bundle.subjects:
            hooks.begin_thread(execute, self.name, str(self.place), subject, root, last, self.now)

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

    @property
    def _requester(self) -> str:
        return self.hook.requester(self.name)

    def _author(self, execute: Execute) -> Author:
        found = people.find_person(execute, self.place.channel, self._requester)
        return Author(self._requester, found.name if found and found.name else self.hook.person or self.hook.role)

    def _post(
        self,
        execute: Execute,
        author: Author,
        ids: Sequence[int],
        found: Mapping[int, HookEvent],
        known: GroupRow | None,
        subjects: Sequence[str] = (),
    ) -> None:
        """Post deliveries where their group continues, or where these `subjects` begin now."""
        events = [found[id] for id in ids]
        items = items_of(events)
        place = self._place_of(execute, ids, items, known, subjects)
        ended = [event for event in events if event.is_resolved]
        earlier = hooks.noticed_deliveries(execute, self.name, place.conversation)
        message = self._message(execute, place, author, ids[0], events, earlier)
        state = DeliveryState.NOTICED
        if len(ended) == len(events) or not self.hook.prompt:
            self._say(execute, place, items, f"{message.key}:said")
        elif why := self._refusal(execute, message):
            self._say(execute, place, items, f"{message.key}:said", why)
        else:
            state = DeliveryState.POSTED
            self._begin_run(execute, place.conversation, message)
            if ended and not place.is_shown:
                self._say(execute, place, items_of(ended), f"{message.key}:ended")
        kept = DeliveryState.POSTED if place.own else state  # what is said in an own thread is kept for it
        posted = known.used if known and place.is_shown else self.now
        hooks.mark_posted(execute, ids, kept, place.conversation, posted)
        what: dict[str, int | str] = {"hook": self.name, "deliveries": len(events), "items": len(items)}
        event = AuditEvent(AuditKind.HOOK_TAKEN, place.thread, author.id, what=what, result=state)
        audit.record(execute, event)
        log.info("hook.%s hook=%s deliveries=%d items=%d", state, self.name, len(events), len(items))

    def _place_of(
        self,
        execute: Execute,
        ids: Sequence[int],
        items: Sequence[Item],
        known: GroupRow | None,
        subjects: Sequence[str],
    ) -> HookPlace:
        title = title_of(self.name, items)
        if known and known.place:
            thread = Thread.parse(known.place)
            conversation = conversations.current_conversation(execute, thread, self.now)
            conversations.set_title(execute, conversation, title)
            return HookPlace(thread, conversation, f"hook:{ids[0]}", own=True, is_shown=ids[-1] <= known.shown)
        conversation = known.conversation if known else f"hook:{ids[0]}"
        conversations.place_conversation(execute, conversation, self.place, title, self.now)
        for subject in subjects if known is None else ():
            hooks.store_group(execute, self.name, str(self.place), subject, conversation, self.now)
        return HookPlace(self.place, conversation, conversation)

    def _message(
        self,
        execute: Execute,
        place: HookPlace,
        author: Author,
        first: int,
        events: Sequence[HookEvent],
        before: Sequence[hooks.DeliveryRow],
    ) -> Message:
        """Return the message of a bundle, with what was only posted since the last one."""
        private = self._is_private(execute, author.id)
        earlier = self._read_events(execute, before).values()
        everything = [*earlier, *events]
        sender = ", ".join(dict.fromkeys(event.sender for event in everything))
        count = len(items_of(events))
        text = f"{self.hook.prompt}\n\n[Hook {self.name}, {count} new item{'s' if count != 1 else ''}]"
        quotes = (Quote(sender, report(items_of(everything)), "hook"),)
        key = f"hook:{self.name}:{first}"
        return Message(
            place.thread, key, "", author, text, self.now, private=private, quotes=quotes, origin=Origin.HOOK
        )

    def _is_private(self, execute: Execute, person: str) -> bool:
        known = people.find_person(execute, self.place.channel, person)
        return known is not None and known.private_chat == self.place.without_topic

    def _refusal(self, execute: Execute, message: Message) -> str | None:
        """Return why the agent does not work on it; None if it does."""
        place, author = message.thread, message.author
        if not (self.access.may_enter(execute, message) and self.access.may(execute, place, author.id, Right.TALK)):
            return _(NO_ACCESS, name=author.name)
        used_up = self.access.budgets.find_used_up(execute, place, author.id, self.now)
        if used_up:
            record_used_up(execute, used_up, place, author.id, "hook")
            return self.access.budgets.describe_used_up(used_up)
        return None

    def _begin_run(self, execute: Execute, conversation: str, message: Message) -> None:
        """Store the message that a run answers; the conversation gets what was only posted in it."""
        inbox.store_message(execute, message, conversation, ready=self.now, received=self.now)
        rows = hooks.noticed_deliveries(execute, self.name, conversation)
        hooks.bring_noticed(execute, [row.id for row in rows])
        conversations.refresh_pending(execute, conversation)

    def _describe(self, items: Sequence[Item], why: str = "") -> str:
        """Return what people read, the texts of the items, too, where the agent does not sum them up."""
        return describe_post(self.name, items, why, whole=not self.hook.prompt)

    def _say(self, execute: Execute, place: HookPlace, items: Sequence[Item], key: str, why: str = "") -> None:
        """Post what was reported as it is; the thread's own conversation gets it with its next message."""
        words = self._describe(items, why)
        if said := why if place.is_shown else words:
            conversation = place.conversation
            outbox.enqueue_notice(execute, place.thread, said, key=key, now=self.now, conversation=conversation)
        row = conversations.find_conversation(execute, place.conversation)
        work = name_side_work(place.work, row.title if row else self.name)
        record_post(execute, place.thread, place.work, work, self._requester, words, key, self.now)
