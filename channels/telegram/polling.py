"""Long polling: commit updates, then advance the offset; report health."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from telegram.error import Conflict, InvalidToken, TelegramError

from agent.messages import Kind, Message, Thread, Unreadable
from channels.base import ChannelError, Health, NotStored, Readiness, Receipt, Receive
from channels.shared.health import ConnectionHealth, backoff_seconds
from channels.shared.texts import ANSWERED, NOT_STORED, NOT_YOURS
from channels.telegram.api import RawBot, TelegramApi, TypingActions
from channels.telegram.events import ALLOWED_UPDATES, NAME, TelegramAccount, parse_update
from channels.telegram.transport import Flood

log = logging.getLogger(__name__)

POLL_GRACE_SECONDS = 10.0  # seconds that an answer may be late before the connection counts as dead
MAX_BACKOFF_SECONDS = 10.0  # seconds between two tries while the server cannot be reached
SETTLED_SECONDS = 1.5  # seconds of peace after which this poller insists when another one comes
STANDBY_SECONDS = 4.0  # seconds between two looks whether the other one is gone: more than it needs to settle
TRIAL_POLLS = 2  # seconds that such a look takes, if nobody ends it

REJECTED = "Telegram rejects the bot's token: take the right one from @BotFather."
CONFLICT = (
    "Another program answers for this bot with the same token: standing by until it is gone. Only one of them works."
)


class Poller:
    """One poller. `typing` shows the first sign of life."""

    def __init__(self, api: RawBot, calls: TelegramApi, typing: TypingActions, seconds: float) -> None:
        self._api = api
        self._calls = calls
        self._typing = typing
        self._seconds = seconds
        self._me: TelegramAccount | None = None
        self._offset = 0
        self._vitals = ConnectionHealth(NAME, log)
        self._last = 0.0  # time.monotonic() of the last successful poll
        self._failures = 0  # polls in a row
        self._settled = 0.0  # time.monotonic() since when nobody else polls
        self._standby = False  # somebody else does
        self._stalls = 0  # batches in a row that could not be stored
        self._told: set[Thread] = set()  # who knows that messages cannot be stored
        self._commands: list[dict[str, str]] = []
        self._side: asyncio.TaskGroup | None = None

    async def set_commands(self, commands: list[dict[str, str]]) -> None:
        """Register the bot's commands; kept, and told again whenever the bot introduces itself."""
        self._commands = commands
        await self._calls("setMyCommands", commands=commands)

    def readiness(self) -> Readiness:
        return self._vitals.now

    async def run(self, receive: Receive) -> None:
        """Poll until cancelled. What the platform does is waited out here; faults of `receive` are raised."""
        async with asyncio.TaskGroup() as side:
            self._side = side
            while True:
                try:
                    me = self._me or await self._identify()
                    updates = await (self._probe_conflict() if self._standby else self._get_updates())
                except TelegramError as error:
                    await asyncio.sleep(self._note_failure(error))
                    continue
                self._last = time.monotonic()
                if not self._vitals.is_ready:
                    self._settled = self._last
                self._vitals.set_health(Health.READY)
                self._failures, self._standby = 0, False
                if updates:
                    await self._store_updates(updates, me, receive)

    async def _identify(self) -> TelegramAccount:
        """Who we are. A webhook would keep the updates from us."""
        await self._api.call("deleteWebhook", {})
        user = await self._api.call("getMe", {})
        self._me = TelegramAccount(user["id"], user["username"])
        log.info("telegram.connected bot=@%s", self._me.username)
        if self._commands:
            self._run_in_background(self._calls("setMyCommands", commands=self._commands), "commands")
        return self._me

    async def _get_updates(self) -> list[dict[str, Any]]:
        """The updates after the confirmed ones. The first poll, and one after trouble, does not wait: is it well?"""
        return await self._call_get_updates(int(self._seconds) if self._vitals.is_ready and not self._failures else 0)

    async def _call_get_updates(self, wait: int) -> list[dict[str, Any]]:
        arguments = {"offset": self._offset, "timeout": wait, "allowed_updates": ALLOWED_UPDATES}
        updates: list[dict[str, Any]] = await self._api.call("getUpdates", arguments, silence=wait + POLL_GRACE_SECONDS)
        return updates

    async def _probe_conflict(self) -> list[dict[str, Any]]:
        """Standing by: whether the other poller is gone. It would end our poll at once; what comes before it does is
        its own, unless it is still there a moment later. Raises Conflict."""
        await asyncio.sleep(STANDBY_SECONDS * random.uniform(0.7, 1.3))  # noqa: S311 — no secret
        waiting = await self._call_get_updates(TRIAL_POLLS)
        if waiting:
            await asyncio.sleep(2 * SETTLED_SECONDS)
            if waiting[0] not in await self._call_get_updates(0):
                raise Conflict("the other took them")
        return waiting

    async def _store_updates(self, updates: list[dict[str, Any]], me: TelegramAccount, receive: Receive) -> None:
        """Store a batch; only then is it confirmed, by the offset of the next poll."""
        events = [event for raw in updates if (event := parse_update(raw, me))]
        if events:
            try:
                receipts = await receive(events)
            except NotStored as error:
                log.error("telegram.not_stored events=%d reason=%s", len(events), error)  # noqa: TRY400 — the reason is enough
                self._apologize(events)
                self._stalls += 1
                await asyncio.sleep(backoff_seconds(self._stalls, MAX_BACKOFF_SECONDS))
                return
            self._told.clear()
            self._stalls = 0
            for event, receipt in zip(events, receipts, strict=True):
                self._acknowledge(event, receipt)
        self._offset = max(self._offset, *(raw["update_id"] + 1 for raw in updates))

    # ------------------------------------------------------------ signs

    def _acknowledge(self, event: Message | Unreadable, receipt: Receipt) -> None:
        """What its author sees at once."""
        if isinstance(event, Unreadable):
            log.error("telegram.unreadable key=%s reason=%s", event.key, event.error)
        elif event.kind is Kind.CLICK:
            self._run_in_background(self._show_choice(event, receipt), f"click {event.key}")
        elif event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
            self._run_in_background(self._typing.show(event.thread), f"typing {event.thread}")

    def _apologize(self, events: Sequence[Message | Unreadable]) -> None:
        """Say once per outage and thread that a message could not be stored."""
        affected = [e for e in events if isinstance(e, Message) and e.addressed and e.kind in (Kind.CHAT, Kind.COMMAND)]
        for thread in dict.fromkeys(event.thread for event in affected):
            if thread not in self._told:
                self._told.add(thread)
                self._run_in_background(
                    self._calls.call_in_thread(thread, "sendMessage", text=NOT_STORED), f"not stored {thread}"
                )

    async def _show_choice(self, click: Message, receipt: Receipt) -> None:
        """Show that a click counted, and take the buttons away. One that did not count is told so."""
        counted = receipt is not Receipt.IGNORED
        words = NOT_YOURS if not counted else f"✓ {click.text}"[:200] if receipt is Receipt.ACCEPTED else ANSWERED
        query = click.key.rpartition(":")[2]
        try:
            await self._calls("answerCallbackQuery", callback_query_id=query, text=words)
        finally:
            if counted:
                await self._calls.call_in_thread(click.thread, "editMessageReplyMarkup", message_id=int(click.id))

    def _run_in_background(self, call: Awaitable[object], name: str) -> None:
        """Make a call that nothing depends on."""

        async def quietly() -> None:
            try:
                await call
            except ChannelError as error:
                log.debug("telegram.sign task=%s reason=%s", name, error)

        assert self._side is not None  # noqa: S101 — set for as long as run() runs
        self._side.create_task(quietly(), name=f"telegram {name}")

    # ------------------------------------------------------------ trouble

    def _note_failure(self, error: TelegramError) -> float:
        """Take note of a failed poll; gives the seconds to wait."""
        self._failures += 1
        match error:
            case InvalidToken():
                self._vitals.set_health(Health.DOWN, REJECTED)
                return backoff_seconds(self._failures, 30.0)
            case Conflict() if "webhook" in error.message:
                self._me = None  # the next hello takes it away
                return backoff_seconds(self._failures, MAX_BACKOFF_SECONDS)
            case Conflict():
                return self._handle_conflict()
            case Flood():
                return float(error.seconds)
        deaf = time.monotonic() - self._last > self._seconds + POLL_GRACE_SECONDS / 2
        if self._failures > 1 or deaf or not self._vitals.is_ready:  # a single hiccup is none
            self._vitals.set_health(Health.DOWN, f"Telegram cannot be reached: {error.message}.")
        return backoff_seconds(self._failures, MAX_BACKOFF_SECONDS)

    def _handle_conflict(self) -> float:
        """Another poller came. Who has polled in peace insists, and the other stands by: two that answer would both
        answer the same message."""
        now = time.monotonic()
        insist = self._vitals.is_ready and not self._standby and now - self._settled > SETTLED_SECONDS
        self._settled = now
        if not insist:
            self._standby = True
            self._vitals.set_health(Health.DOWN, CONFLICT)
        return 0.0
