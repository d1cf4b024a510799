"""Long polling: commit updates, then advance the offset; report health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from agent.backoff import backoff_seconds, jitter
from agent.messages import Kind, Message, Thread
from channels.base import ChannelError, Health, NotStored, Receipt, Receive, TokenRejected
from channels.shared.background import BackgroundTasks
from channels.shared.caches import ExpiringDict, TypingActions
from channels.shared.event_connection import ConnectionHealth
from channels.shared.http_client import RateLimited
from channels.shared.inbound import InboundPipeline
from channels.shared.reply_layout import is_stop, press_toast
from channels.shared.texts import choice_line
from channels.telegram.api import PollConflict, TelegramApi
from channels.telegram.events import ALLOWED_UPDATES, NAME, TelegramAccount, parse_update
from channels.telegram.reply import choice_arguments

log = logging.getLogger(__name__)

POLL_GRACE_SECONDS = 8.0  # how late an answer may be before the connection counts as lost
MAX_BACKOFF_SECONDS = 10.0  # while the server cannot be reached
MAX_TOKEN_BACKOFF_SECONDS = 30.0  # while Telegram rejects the token
UNDISTURBED_SECONDS = 1.5  # after which this poller keeps polling when another one appears
CLEARED_SECONDS = 10.0  # after the buttons of a message were taken away, in which that is not asked again
STANDBY_SECONDS = 4.0  # between two checks for the other poller: longer than UNDISTURBED_SECONDS
STANDBY_POLL_SECONDS = 2  # how long such a check waits for updates
MAX_TOAST_CHARS = 200

REJECTED = "Telegram rejects the bot's token. Copy it again from @BotFather."
CONFLICT = (
    "Another program polls with this bot's token. This one is standing by and takes over when the other one stops."
)


class Poller:
    """Poll for one bot, and acknowledge what its users send."""

    def __init__(
        self,
        api: TelegramApi,
        typing: TypingActions[Thread],
        poll_seconds: float,
        background: BackgroundTasks,
        account_seconds: float,
    ) -> None:
        self._api = api
        self._poll_seconds = poll_seconds
        self._account: TelegramAccount | None = None
        self._account_seconds = account_seconds
        self._asked_account = 0.0  # time.monotonic() when Telegram last said how the bot is named
        self._offset = 0
        self.health = ConnectionHealth(NAME, log)
        self._last_poll = 0.0  # time.monotonic() of the last successful poll
        self._undisturbed_since = 0.0  # time.monotonic() of the last conflict
        self._standby = False  # another program polls
        self._failed_batches = 0  # in a row that could not be stored
        self._commands: list[dict[str, str]] = []
        self._background = background
        self._cleared: ExpiringDict[str, bool] = ExpiringDict()  # messages without buttons since
        self._pipeline = InboundPipeline(
            NAME,
            background,
            apologize=lambda event, text: api.call_in_thread(event.thread, "sendMessage", text=text),
            show_working=lambda event: typing.show(event.thread),
            early=True,
        )

    async def set_commands(self, commands: list[dict[str, str]]) -> None:
        """Register the bot's commands, now and after every restart of the account."""
        self._commands = commands
        await self._api("setMyCommands", commands=commands)

    @property
    def username(self) -> str:
        """The bot's name, "" while it is unknown."""
        return self._account.username if self._account else ""

    async def run(self, receive: Receive) -> None:
        """Poll until cancelled. Retries what the platform fails at; raises what `receive` raises."""
        self._pipeline.receive = receive
        while True:
            await self._poll_once()

    async def _poll_once(self) -> None:
        try:
            account = await self._current_account()
            updates = await (self._probe_conflict() if self._standby else self._get_updates())
        except ChannelError as error:
            await asyncio.sleep(self._note_failure(error))
            return
        self._last_poll = time.monotonic()
        if not self.health.is_ready:
            self._undisturbed_since = self._last_poll
        self.health.set_health(Health.READY, f"@{account.username}")
        self.health.failures, self._standby = 0, False
        if updates:
            await self._store_updates(updates, account)

    async def _current_account(self) -> TelegramAccount:
        """Return the bot's account, asked for now and then: its @name may change."""
        if self._account is None:
            return await self._identify()
        if time.monotonic() - self._asked_account > self._account_seconds:
            known, self._account = self._account, await self._ask_account()
            if known != self._account:
                log.info("telegram.renamed bot=%s", self._account.username)
        return self._account

    async def _ask_account(self) -> TelegramAccount:
        user = await self._api("getMe")
        self._asked_account = time.monotonic()
        return TelegramAccount(user["id"], user["username"])

    async def _identify(self) -> TelegramAccount:
        """Ask for the bot's account. Removes a webhook, which would receive the updates instead."""
        await self._api("deleteWebhook")
        self._account = await self._ask_account()
        log.info("telegram.connected bot=%s", self._account.username)
        if self._commands:
            self._background.start_best_effort(self._api("setMyCommands", commands=self._commands), "telegram commands")
        return self._account

    async def _get_updates(self) -> list[dict[str, Any]]:
        """Return the updates after the offset. The first poll, and one after a failure, returns at once."""
        waits = self.health.is_ready and not self.health.failures
        return await self._call_get_updates(int(self._poll_seconds) if waits else 0)

    async def _call_get_updates(self, seconds: int) -> list[dict[str, Any]]:
        updates: list[dict[str, Any]] = await self._api(
            "getUpdates",
            offset=self._offset,
            timeout=seconds,
            allowed_updates=ALLOWED_UPDATES,
            answer_seconds=seconds + POLL_GRACE_SECONDS,
        )
        return updates

    async def _probe_conflict(self) -> list[dict[str, Any]]:
        """Check while standing by whether the other poller is gone. Raises PollConflict.

        Another poller ends ours at once. Updates that arrive before it does belong to the other one, unless they are
        still waiting a moment later.
        """
        await asyncio.sleep(jitter(STANDBY_SECONDS))
        updates = await self._call_get_updates(STANDBY_POLL_SECONDS)
        if updates:
            await asyncio.sleep(2 * UNDISTURBED_SECONDS)
            if updates[0] not in await self._call_get_updates(0):
                raise PollConflict("the other program took the updates")
        return updates

    async def _store_updates(self, updates: list[dict[str, Any]], account: TelegramAccount) -> None:
        """Store a batch, then confirm it with the offset of the next poll."""
        parsed = [(raw, event) for raw in updates if (event := parse_update(raw, account))]
        if parsed:
            try:
                receipts = await self._pipeline.store([event for _raw, event in parsed])
            except NotStored:
                self._failed_batches += 1
                await asyncio.sleep(backoff_seconds(self._failed_batches, MAX_BACKOFF_SECONDS))
                return
            self._failed_batches = 0
            for (raw, event), receipt in zip(parsed, receipts, strict=True):
                is_press = isinstance(event, Message) and "callback_query" in raw
                if isinstance(event, Message) and is_press and self._pipeline.is_answered(event, receipt):
                    showing = self._show_choice(raw["callback_query"]["message"], event, receipt)
                    self._background.start_best_effort(showing, f"telegram click {event.key}")
        self._offset = max(self._offset, *(raw["update_id"] + 1 for raw in updates))

    async def _show_choice(self, question: Mapping[str, Any], click: Message, receipt: Receipt) -> None:
        """Answer a click. Show the choice in place of the buttons, which stay if the person may not use them."""
        query, place = click.key.rpartition(":")[2], f"{click.thread.chat}/{click.id}"
        toast = press_toast(click, receipt)[:MAX_TOAST_CHARS]
        try:
            await self._api("answerCallbackQuery", callback_query_id=query, text=toast)
        finally:
            is_choice = click.kind is Kind.CLICK and receipt is Receipt.ACCEPTED
            chosen = choice_arguments(question, choice_line(click.text, click.author.name)) if is_choice else {}
            if chosen:
                await self._api.call_in_thread(click.thread, "editMessageText", message_id=int(click.id), **chosen)
            elif receipt is Receipt.IGNORED or is_stop(click):  # that button goes with the end of the reply
                pass
            elif receipt is Receipt.ACCEPTED or place not in self._cleared:
                self._cleared.set(place, True, CLEARED_SECONDS)
                await self._api.call_in_thread(click.thread, "editMessageReplyMarkup", message_id=int(click.id))

    # ------------------------------------------------------------ failures

    def _note_failure(self, error: ChannelError) -> float:
        match error:
            case TokenRejected():
                return self.health.note_failure(REJECTED, MAX_TOKEN_BACKOFF_SECONDS)
            case PollConflict() if "webhook" in str(error):
                self._account = None  # identifying it again removes the webhook
                return self.health.note_failure("", MAX_BACKOFF_SECONDS)
            case PollConflict():
                return self._handle_conflict()
            case RateLimited():
                self.health.failures += 1
                return error.after
        overdue = time.monotonic() - self._last_poll > self._poll_seconds + POLL_GRACE_SECONDS / 2
        is_short = self.health.is_ready and not self.health.failures and not overdue  # one short failure is normal
        return self.health.note_failure("" if is_short else f"{error}.", MAX_BACKOFF_SECONDS)

    def _handle_conflict(self) -> float:
        """Keep polling if this poller was undisturbed before, else stand by: two pollers would answer twice."""
        now = time.monotonic()
        self.health.failures += 1
        insist = self.health.is_ready and not self._standby and now - self._undisturbed_since > UNDISTURBED_SECONDS
        self._undisturbed_since = now
        if not insist:
            self._standby = True
            self.health.set_health(Health.DOWN, CONFLICT)
        return 0.0
