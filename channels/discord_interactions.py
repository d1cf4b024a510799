"""Native commands, buttons and menus: stored first, answered within the three seconds that Discord waits."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from agent.conversation import Kind, Message
from channels.base import NotStored, Receipt, Receive
from channels.discord_calls import Answered, Calls, Expired
from channels.discord_rivals import Rivals

log = logging.getLogger(__name__)

SOON = 2.0  # seconds until an answer that has to wait for the store is deferred
LIVES = 14 * 60.0  # seconds that an interaction can be answered (15 minutes, less a margin)

MESSAGE, DEFER, DEFER_CLICK, UPDATE = 4, 5, 6, 7  # kinds of answers
ONLY_YOU = 1 << 6  # EPHEMERAL
NOT_YOURS = "This is not yours to answer, or it is answered already."
NOT_STORED = "I can't store anything at the moment, so I have not taken this. Try it again in a moment."


class Tokens:
    """The native commands that wait for their answer, by interaction id."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, float]] = {}
        self._seen: dict[str, float] = {}

    def add(self, interaction: str, token: str) -> None:
        now = time.monotonic()
        self._waiting = {known: entry for known, entry in self._waiting.items() if entry[1] > now}
        self._seen = {known: until for known, until in self._seen.items() if until > now - 3600}
        self._waiting[interaction] = (token, now + LIVES)
        self._seen[interaction] = now

    def take(self, interaction: str) -> str | None:
        """ "application/token" of one that can still be answered, once."""
        token, until = self._waiting.pop(interaction, ("", 0.0))
        return token if until > time.monotonic() else None

    def known(self, interaction: str) -> bool:
        """Whether this id is an interaction's, which no message can refer to."""
        return interaction in self._seen


class Interactions:
    """Takes them to the inbox, and answers them."""

    def __init__(self, calls: Calls, tokens: Tokens, rivals: Rivals) -> None:
        self._calls = calls
        self._tokens = tokens
        self._rivals = rivals

    async def handle(self, event: dict[str, Any], made: Message, receive: Receive) -> None:
        """One interaction, which became `made`."""
        storing = asyncio.ensure_future(receive([made]))
        deferred = False
        try:
            await asyncio.wait({storing}, timeout=SOON)
            if not storing.done():
                deferred = await self._answer(event, {"type": DEFER if made.kind is Kind.COMMAND else DEFER_CLICK})
            [receipt] = await storing
        except NotStored as error:
            log.error("discord.not_stored events=1 reason=%s", error)  # noqa: TRY400 — the reason is enough
            await self._whisper(event, NOT_STORED, deferred)
            return
        finally:
            storing.cancel()
        if receipt is Receipt.IGNORED:
            await self._whisper(event, NOT_YOURS, deferred)
        elif made.kind is Kind.COMMAND:
            if not deferred and not await self._answer(event, {"type": DEFER}, receipt is Receipt.ACCEPTED):
                return
            self._tokens.add(made.id, _token(event))
        else:
            chosen = {"components": _chosen(made.text)}
            if deferred:
                await self._calls("PATCH", f"/webhooks/{_token(event)}/messages/@original", chosen, free=True)
            else:
                await self._answer(event, {"type": UPDATE, "data": chosen}, receipt is Receipt.ACCEPTED)

    async def _answer(self, event: dict[str, Any], body: dict[str, Any], new: bool = False) -> bool:
        """The first answer. False: it came too late, or it was given already: if the event is `new`, by the other."""
        try:
            await self._calls("POST", f"/interactions/{event['id']}/{event['token']}/callback", body, free=True)
        except Answered:
            if new:
                self._rivals.met("it had answered an interaction already")
            return False
        except Expired as error:
            log.warning("discord.too_late interaction=%s reason=%s", event["id"], error)
            return False
        return True

    async def _whisper(self, event: dict[str, Any], words: str, deferred: bool) -> None:
        """Say something to that person only."""
        data = {"content": words, "flags": ONLY_YOU}
        if not deferred:
            await self._answer(event, {"type": MESSAGE, "data": data})
        elif event["type"] == 2:
            await self._calls("PATCH", f"/webhooks/{_token(event)}/messages/@original", {"content": words}, free=True)
        else:
            await self._calls("POST", f"/webhooks/{_token(event)}", data, free=True)


def _token(event: dict[str, Any]) -> str:
    return f"{event['application_id']}/{event['token']}"


def _chosen(text: str) -> list[dict[str, Any]]:
    """The choice, in place of the buttons."""
    label = f"✓ {' '.join(text.split())}"
    label = label if len(label) <= 80 else f"{label[:79]}…"
    return [
        {"type": 1, "components": [{"type": 2, "style": 3, "label": label, "custom_id": "chosen", "disabled": True}]}
    ]
