"""Native commands, buttons and menus: store them, and answer within the three seconds that Discord waits."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from agent.blocks import APPROVAL_OPTIONS
from agent.messages import Kind, Message, ReplyHandle
from catalogue import N_
from channels.base import ChannelError, NotStored, Receipt
from channels.discord.api import DiscordApi, InteractionAnswered
from channels.discord.body import with_rows
from channels.shared.caches import ExpiringDict
from channels.shared.inbound import InboundPipeline
from channels.shared.reply_layout import is_stop, press_refusal
from channels.shared.texts import choice_line, shorten, text_for

log = logging.getLogger(__name__)

DEFER_AFTER_SECONDS = 2.0  # the response is deferred while the store is slower than this
TOKEN_TIMEOUT_SECONDS = 5.0  # a reply waits so long for Discord to accept the first response
TOKEN_LIFETIME_SECONDS = 14 * 60.0  # 15 minutes at Discord, less a margin
MAX_LABEL_CHARS = 80  # of a button

# Types of a response (discord.com/developers/docs/interactions/receiving-and-responding)
RESPOND_MESSAGE, DEFER_MESSAGE, DEFER_UPDATE, RESPOND_UPDATE = 4, 5, 6, 7
APPLICATION_COMMAND = 2  # a type of interaction
EPHEMERAL_FLAG = 1 << 6
GREEN, RED = 3, 4  # styles of a button
NOT_ALLOWED = N_("You can't use this here. If I don't know you yet, send me a direct message first.")
NOT_STORED = N_("I can't save this right now. Please try again in a moment.")


class Interactions:
    """Stores interactions in the inbox and answers them. The response of a native command is deferred to its reply."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._tokens: ExpiringDict[str, asyncio.Future[str]] = ExpiringDict()  # by the id of the interaction

    async def take_token(self, interaction: str) -> str | None:
        """Return "application/token" of a deferred response, once; "" when there is none.

        None: this process knows nothing of the interaction; an earlier one may have deferred its response.
        """
        token = self._tokens.get(interaction)
        if token is None:
            return None
        await asyncio.wait({token}, timeout=TOKEN_TIMEOUT_SECONDS)
        taken = token.result() if token.done() else ""
        self._expect_token(interaction).set_result("")
        return taken

    def is_interaction(self, id: str) -> bool:
        """Whether this is the id of an interaction, to which a message cannot refer."""
        return id in self._tokens

    def _expect_token(self, interaction: str) -> asyncio.Future[str]:
        """Return the token to be set: the reply may be ready before Discord has accepted the first response."""
        token: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tokens.set(interaction, token, TOKEN_LIFETIME_SECONDS)
        return token

    async def store_and_answer(self, event: dict[str, Any], message: Message, pipeline: InboundPipeline) -> None:
        """Store and answer one interaction; `message` is what it was parsed to."""
        if self._api.token_shared:
            return
        is_command = event["type"] == APPLICATION_COMMAND
        defer = {"type": DEFER_MESSAGE if is_command else DEFER_UPDATE}
        deferred = False
        token = self._expect_token(message.id) if is_command else None
        if is_command:
            message = replace(
                message, reply_handle=ReplyHandle(_response_token(event), time.time() + TOKEN_LIFETIME_SECONDS)
            )
        storing = asyncio.ensure_future(pipeline.offer(message))
        try:
            await asyncio.wait({storing}, timeout=DEFER_AFTER_SECONDS)
            if not storing.done():
                deferred = await self._respond(event, defer)
            receipt = await storing
        except NotStored as error:
            log.error("discord.not_stored events=1 reason=%s", error)  # noqa: TRY400 — the reason is enough
            await self._respond_privately(event, text_for(message, NOT_STORED), deferred)
            return
        finally:
            storing.cancel()
        if not is_command and not pipeline.is_answered(message, receipt):
            return
        if not is_command and (refusal := press_refusal(message, receipt)):
            await self._respond_privately(event, refusal, deferred)
        elif receipt is Receipt.IGNORED:
            await self._respond_privately(event, text_for(message, NOT_ALLOWED), deferred)
        elif token:
            waiting = deferred or await self._respond(event, defer, receipt is Receipt.ACCEPTED)
            token.set_result(_response_token(event) if waiting else "")
        elif is_stop(message):
            if not deferred:
                await self._respond(event, defer, True)
        elif deferred:
            await self._api.edit_response(_response_token(event), _after_press(event, message))
        else:
            await self._respond(event, {"type": RESPOND_UPDATE, "data": _after_press(event, message)}, True)

    async def acknowledge_foreign(self, event: dict[str, Any]) -> None:
        """Acknowledge a click on a button that is not Fawn's, unless the program that posted it answers first."""
        if event["type"] == 3:
            await asyncio.sleep(DEFER_AFTER_SECONDS)
            await self._respond(event, {"type": DEFER_UPDATE})

    async def _respond(self, event: dict[str, Any], body: dict[str, Any], new: bool = False) -> bool:
        """Send the first response. Returns False when Discord no longer takes it.

        When an event that is `new` already has a response, a second program gave it.
        """
        path = f"/interactions/{event['id']}/{event['token']}/callback"
        try:
            await self._api("POST", path, body, interaction=True)
        except InteractionAnswered:
            if new:
                self._api.report_shared_token("it had answered an interaction already")
            return False
        except ChannelError as error:  # expired or unreachable: what is stored counts all the same
            log.warning("discord.unanswered interaction=%s reason=%s", event["id"], error)
            return False
        return True

    async def _respond_privately(self, event: dict[str, Any], text: str, deferred: bool) -> None:
        data = {"content": text, "flags": EPHEMERAL_FLAG}
        if not deferred:
            await self._respond(event, {"type": RESPOND_MESSAGE, "data": data})
        elif event["type"] == 2:
            await self._api.edit_response(_response_token(event), {"content": text})
        else:
            await self._api("POST", f"/webhooks/{_response_token(event)}", data, interaction=True)


def _response_token(event: dict[str, Any]) -> str:
    return f"{event['application_id']}/{event['token']}"


def _after_press(event: dict[str, Any], message: Message) -> dict[str, Any]:
    """Return a message body that shows the choice in place of the buttons, or nothing in place of a command's."""
    if message.kind is Kind.COMMAND:
        return with_rows(event["message"], [])
    label = shorten(choice_line(message.text, message.author.name), MAX_LABEL_CHARS)
    style = RED if message.text == APPROVAL_OPTIONS[1] else GREEN
    button = {"type": 2, "style": style, "label": label, "custom_id": "chosen", "disabled": True}
    return with_rows(event["message"], [{"type": 1, "components": [button]}])
