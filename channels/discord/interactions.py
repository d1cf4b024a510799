"""Native commands, buttons and menus: stored first, answered within the three seconds that Discord waits."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from agent.messages import Kind, Message
from channels.base import ChannelError, NotStored, Receipt, Receive
from channels.discord.api import DiscordApi, InteractionAnswered
from channels.discord.second_instance import SecondInstance
from channels.shared.texts import ANSWERED, NOT_YOURS

log = logging.getLogger(__name__)

DEFER_AFTER_SECONDS = 2.0  # seconds until an answer that has to wait for the store is deferred
ANSWER_TIMEOUT_SECONDS = 5.0  # seconds an answer waits for Discord to know that there will be one
TOKEN_LIFETIME_SECONDS = 14 * 60.0  # seconds that an interaction can be answered (15 minutes, less a margin)

MESSAGE, DEFER, DEFER_CLICK, UPDATE = 4, 5, 6, 7  # kinds of answers
EPHEMERAL_FLAG = 1 << 6  # EPHEMERAL
NOT_ALLOWED = "You may not use this here. If we have not met, write to me in a direct message first."
NOT_STORED = "I can't save anything right now, so this was not taken. Please try again in a moment."


class InteractionTokens:
    """The native commands that wait for their answer, by interaction id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._known: dict[str, float] = {}  # until when they can be answered

    def expect(self, interaction: str) -> None:
        """It is being stored: its answer may be ready before Discord knows that there will be one."""
        now = time.monotonic()
        self._known = {known: until for known, until in self._known.items() if until > now}
        self._waiting = {known: token for known, token in self._waiting.items() if known in self._known}
        self._known[interaction] = now + TOKEN_LIFETIME_SECONDS
        self._waiting[interaction] = asyncio.get_running_loop().create_future()

    def settle(self, interaction: str, token: str) -> None:
        """Discord waits for the answer at this "application/token"; "" when it does not."""
        waiting = self._waiting.get(interaction)
        if waiting and not waiting.done():
            waiting.set_result(token)

    async def take_token(self, interaction: str) -> str:
        """ "application/token" of one that can still be answered, once; "" when there is none."""
        waiting = self._waiting.get(interaction)
        if waiting is None or self._known[interaction] < time.monotonic():
            return ""
        await asyncio.wait({waiting}, timeout=ANSWER_TIMEOUT_SECONDS)
        self._waiting.pop(interaction, None)
        return waiting.result() if waiting.done() else ""

    def is_known(self, interaction: str) -> bool:
        """Whether this id is an interaction's, which no message can refer to."""
        return interaction in self._known


class Interactions:
    """Takes them to the inbox, and answers them."""

    def __init__(self, calls: DiscordApi, tokens: InteractionTokens, second: SecondInstance) -> None:
        self._calls = calls
        self._tokens = tokens
        self._second = second

    async def handle(self, event: dict[str, Any], made: Message, receive: Receive) -> None:
        """One interaction, which became `made`."""
        defer = {"type": DEFER if made.kind is Kind.COMMAND else DEFER_CLICK}
        deferred = False
        if self._second.detected:
            return
        if made.kind is Kind.COMMAND:
            self._tokens.expect(made.id)
        storing = asyncio.ensure_future(receive([made]))
        try:
            await asyncio.wait({storing}, timeout=DEFER_AFTER_SECONDS)
            if not (storing.done() or deferred):
                deferred = await self._answer_first(event, defer)
            [receipt] = await storing
        except NotStored as error:
            log.error("discord.not_stored events=1 reason=%s", error)  # noqa: TRY400 — the reason is enough
            await self._answer_privately(event, NOT_STORED, deferred)
            return
        finally:
            storing.cancel()
        if made.kind is Kind.CLICK and receipt is not Receipt.ACCEPTED:
            await self._answer_privately(event, NOT_YOURS if receipt is Receipt.IGNORED else ANSWERED, deferred)
        elif receipt is Receipt.IGNORED:
            await self._answer_privately(event, NOT_ALLOWED, deferred)
        elif made.kind is Kind.COMMAND:
            waits = deferred or await self._answer_first(event, defer, receipt is Receipt.ACCEPTED)
            self._tokens.settle(made.id, _answer_token(event) if waits else "")
        else:
            chosen = {"components": _choice_text(made.text)}
            if deferred:
                await self._calls("PATCH", f"/webhooks/{_answer_token(event)}/messages/@original", chosen, free=True)
            else:
                await self._answer_first(event, {"type": UPDATE, "data": chosen}, True)

    async def _answer_first(self, event: dict[str, Any], body: dict[str, Any], new: bool = False) -> bool:
        """Answer first. False: too late, or answered already (where the event is `new`: by another program)."""
        try:
            await self._calls("POST", f"/interactions/{event['id']}/{event['token']}/callback", body, free=True)
        except InteractionAnswered:
            if new:
                self._second.report("it had answered an interaction already")
            return False
        except ChannelError as error:  # too late, or Discord cannot be reached: what was stored counts all the same
            log.warning("discord.unanswered interaction=%s reason=%s", event["id"], error)
            return False
        return True

    async def _answer_privately(self, event: dict[str, Any], words: str, deferred: bool) -> None:
        """Say something to that person only."""
        data = {"content": words, "flags": EPHEMERAL_FLAG}
        if not deferred:
            await self._answer_first(event, {"type": MESSAGE, "data": data})
        elif event["type"] == 2:
            await self._calls(
                "PATCH", f"/webhooks/{_answer_token(event)}/messages/@original", {"content": words}, free=True
            )
        else:
            await self._calls("POST", f"/webhooks/{_answer_token(event)}", data, free=True)


def _answer_token(event: dict[str, Any]) -> str:
    return f"{event['application_id']}/{event['token']}"


def _choice_text(text: str) -> list[dict[str, Any]]:
    """The choice, in place of the buttons."""
    label = f"✓ {' '.join(text.split())}"
    label = label if len(label) <= 80 else f"{label[:79]}…"
    return [
        {"type": 1, "components": [{"type": 2, "style": 3, "label": label, "custom_id": "chosen", "disabled": True}]}
    ]
