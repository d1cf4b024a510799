"""Post a reply on Feishu: streaming cards in its thread, rich messages where Feishu refuses cards."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agent.blocks import Final, View
from agent.messages import Thread
from channels.base import ChatGone, OutcomeUnknown, Refused, SentMessages, TryLater
from channels.feishu import card_renderer
from channels.feishu.api import ApiRefusal, FeishuApi
from channels.feishu.card_api import CardApi, dump_json
from channels.feishu.card_renderer import FeishuMessage, card_json, rich_message
from channels.shared.reply_writer import MessageMissing
from channels.shared.texts import with_options

log = logging.getLogger(__name__)

_TARGET_MISSING_CODES = frozenset({230011, 230050, 230054, 230110, 230019})  # of a reply: recalled or invisible
_MESSAGE_MISSING_CODES = frozenset({230011, 230110, 230001, 230050})  # of a change


class MessageSender:
    """Posts messages into a thread, each at most once: for an hour the platform recognizes a repeated `uuid`."""

    def __init__(self, api: FeishuApi, thread: Thread, key: str, to: str = "") -> None:
        self._api = api
        self._thread = thread
        self._key = key
        self._to = to if to.startswith("om_") else ""

    async def send_message(self, kind: str, content: Mapping[str, Any], name: str, *, quote: bool = False) -> str:
        """Post a message, in the thread's topic if it has one; return its id.

        `name` distinguishes the messages of a reply. A `quote` refers to the message it answers.
        """
        seed = f"{self._thread} {self._to} {self._key} {name}"
        uuid = f"{self._key}-{hashlib.blake2b(seed.encode(), digest_size=10).hexdigest()}"
        body: dict[str, Any] = {"msg_type": kind, "content": dump_json(content), "uuid": uuid}
        topic = self._thread.topic
        if topic:
            body["reply_in_thread"] = True
        targets = [self._to, topic] if topic else [self._to] if quote else []
        for target in dict.fromkeys(filter(None, targets)):
            try:
                answer = await self._api("POST", f"im/v1/messages/{target}/reply", body)
                return str(answer["message_id"])
            except ApiRefusal as error:
                if error.code not in _TARGET_MISSING_CODES:
                    raise
        if topic:
            raise ChatGone("the message to answer is not there any more")
        body["receive_id"] = self._thread.chat
        answer = await self._api("POST", "im/v1/messages", body, query={"receive_id_type": "chat_id"})
        return str(answer["message_id"])


class FeishuRenderer:
    """Renders and posts the cards of one reply."""

    def __init__(self, api: FeishuApi, cards: CardApi, thread: Thread, posts: SentMessages, to: str) -> None:
        self._api = api
        self._cards = cards
        self._topic = thread.topic
        self._sender = MessageSender(api, thread, posts.key, to)
        self._unknown = {post.index for post in posts.known if post.id is None}
        self._shown: dict[str, FeishuMessage] = {}  # message id → what its card shows
        self._plain: set[str] = set()  # ids of messages without a card

    def render(self, view: View) -> list[FeishuMessage]:
        return card_renderer.render_live(view)

    def render_final(self, final: Final) -> list[FeishuMessage]:
        return card_renderer.render_final_cards(final, direct=not self._topic)

    def placeholder(self) -> FeishuMessage:
        return FeishuMessage("…")

    def repeat(self, part: FeishuMessage) -> FeishuMessage:
        return part  # Feishu shows a repeated `uuid` once

    async def typing(self) -> None:
        """Do nothing: a reaction on the question shows that the bot is working."""

    def plain(self, part: FeishuMessage) -> FeishuMessage:
        text = with_options(part.text, part.options)
        return replace(part, text=text, ask_id="", options=(), plain=True)

    # ------------------------------------------------------------ calls

    async def post(self, part: FeishuMessage, index: int, replaced: str) -> str:
        name = f"{index} {replaced}"  # an earlier uuid would return the replaced message
        try:
            message_id = await (
                self._post_rich(part, index, name) if part.plain else self._post_card(part, index, name)
            )
        except OutcomeUnknown:
            self._unknown.add(index)
            raise
        self._shown[message_id] = part
        return message_id

    async def _post_rich(self, part: FeishuMessage, index: int, name: str) -> str:
        message_id = await self._sender.send_message("post", rich_message(part), f"{name} plain")
        self._plain.add(message_id)
        if index in self._unknown:  # an earlier post with this uuid may show another text
            await self._edit_plain(message_id, replace(part, final=True))
        return message_id

    async def _post_card(self, part: FeishuMessage, index: int, name: str) -> str:
        json = card_json(part, self._topic)
        card_id = await self._cards.create_card(json)
        content = {"type": "card", "data": {"card_id": card_id}}
        message_id = await self._sender.send_message("interactive", content, name, quote=part.quote)
        self._cards.remember_card(message_id, card_id)
        if index in self._unknown:  # an earlier post with this uuid may show another card
            try:
                if await self._cards.find_card(message_id) != card_id:
                    await self._cards.replace_card(message_id, json)
            except Refused:
                with suppress(Refused):
                    await self._recall_message(message_id)
                raise
        return message_id

    async def edit(self, message_id: str, part: FeishuMessage) -> None:
        if message_id in self._plain:
            await self._edit_plain(message_id, part)
            return
        shown = self._shown.pop(message_id, None)
        try:
            await self._change_card(message_id, shown, part)
        except Refused as error:
            if not part.final:  # a card stops streaming after ten minutes: the next edit replaces the whole card
                raise TryLater(str(error), 0.5) from None
            raise
        self._shown[message_id] = part

    async def _change_card(self, message_id: str, shown: FeishuMessage | None, part: FeishuMessage) -> None:
        """Show `part` with the smallest change."""
        has_text = shown and shown.text_with_mention and part.text_with_mention and not part.plain
        if shown and has_text and not part.final and replace(shown, text=part.text) == part:
            await self._cards.stream_text(message_id, "text", part.text_with_mention)
        elif shown and part.final and replace(shown, final=True) == part:
            await self._cards.change_settings(message_id, card_json(part, self._topic)["config"])
        else:
            await self._cards.replace_card(message_id, card_json(part, self._topic))

    async def _edit_plain(self, message_id: str, part: FeishuMessage) -> None:
        if not part.final:
            return  # Feishu allows only twenty edits
        body = {"msg_type": "post", "content": dump_json(rich_message(part))}
        await self._api("PUT", f"im/v1/messages/{message_id}", body)

    async def delete(self, message_id: str) -> None:
        try:
            await self._recall_message(message_id)
        except MessageMissing:
            raise
        except Refused:  # too old to be recalled
            await self._cards.replace_card(message_id, card_json(FeishuMessage("·", final=True), self._topic))

    async def _recall_message(self, message_id: str) -> None:
        try:
            await self._api("DELETE", f"im/v1/messages/{message_id}")
        except ApiRefusal as error:
            raise (MessageMissing(str(error)) if error.code in _MESSAGE_MISSING_CODES else error) from None
