"""A reply's messages on Feishu: streaming cards in its thread, rich messages where cards are refused."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from agent.blocks import Final, View
from agent.messages import Thread
from channels.base import ChatGone, OutcomeUnknown, Refused, SentMessages, TryLater
from channels.feishu import card_renderer as shape
from channels.feishu.api import ApiRefusal, FeishuApi, ScopeMissing
from channels.feishu.card_api import CardApi
from channels.feishu.card_renderer import FeishuMessage
from channels.shared.reply_writer import MessageMissing

log = logging.getLogger(__name__)

_NO_TARGET_CODES = frozenset(
    {230011, 230050, 230054, 230110, 230019}
)  # the message to answer was recalled or cannot be seen
_LOST_CODES = frozenset({230011, 230110, 230001, 230050})  # the message to change is not there


class MessageSender:
    """Puts messages into a thread, each at most once: the platform knows a repeated `uuid` for an hour."""

    def __init__(self, calls: FeishuApi, thread: Thread, key: str, to: str = "") -> None:
        self._calls = calls
        self._thread = thread
        self._key = key
        self._to = to if to.startswith("om_") else ""

    async def send(self, kind: str, content: Mapping[str, Any], name: str, *, quote: bool = False) -> str:
        """A new message, an answer in the thread's topic where it has one; gives its id. `name` tells the messages of
        a reply apart, `quote` refers to the message it answers."""
        seed = f"{self._thread} {self._to} {self._key} {name}"
        uuid = f"{self._key}-{hashlib.blake2b(seed.encode(), digest_size=10).hexdigest()}"
        body: dict[str, Any] = {"msg_type": kind, "content": orjson.dumps(content).decode(), "uuid": uuid}
        topic = self._thread.topic
        if topic:
            body["reply_in_thread"] = True
        for target in dict.fromkeys([self._to, topic] if topic else [self._to] if quote else []):
            if not target:
                continue
            try:
                answer = await self._calls("POST", f"im/v1/messages/{target}/reply", body)
                return str(answer["message_id"])
            except ApiRefusal as error:
                if error.code not in _NO_TARGET_CODES:
                    raise
        if topic:
            raise ChatGone("the message to answer is not there any more")
        body["receive_id"] = self._thread.chat
        answer = await self._calls("POST", "im/v1/messages", body, query={"receive_id_type": "chat_id"})
        return str(answer["message_id"])


class FeishuRenderer:
    """The cards of one reply."""

    def __init__(self, calls: FeishuApi, cards: CardApi, thread: Thread, posts: SentMessages, to: str) -> None:
        self._calls = calls
        self._cards = cards
        self._topic = thread.topic
        self._sender = MessageSender(calls, thread, posts.key, to)
        self._unknown = {post.index for post in posts.known if post.id is None}
        self._index = {post.id: post.index for post in posts.known if post.id}
        self._shown: dict[str, FeishuMessage] = {}  # message → what its card shows
        self._plain: set[str] = set()  # messages that are no cards
        self._gone: dict[int, str] = {}  # index → the message that was there and is not any more

    def render(self, view: View) -> list[FeishuMessage]:
        return shape.render_live(view)

    def render_final(self, final: Final) -> list[FeishuMessage]:
        return shape.render_final_cards(final, direct=not self._topic)

    def placeholder(self) -> FeishuMessage:
        return FeishuMessage("…")

    def repeat(self, part: FeishuMessage) -> FeishuMessage:
        return part  # a `uuid` that comes again shows once

    async def typing(self) -> None:
        """Nothing: the reaction on the question is the sign of work."""

    # ------------------------------------------------------------ calls

    async def post(self, part: FeishuMessage, index: int) -> str:
        try:
            message_id = await self._post_message(part, index)
        except OutcomeUnknown:
            self._unknown.add(index)
            raise
        self._index[message_id] = index
        self._shown[message_id] = part
        return message_id

    async def _post_message(self, part: FeishuMessage, index: int) -> str:
        """As a card; where cards are refused, as a rich message."""
        name = f"{index} {self._gone.get(index, '')}"  # a uuid twice would give the message that is gone
        try:
            return await self._post_card(part, index, name)
        except ChatGone:
            raise
        except Refused as error:
            log.warning("feishu.card_refused reason=%s", error)
        message_id = await self._sender.send("post", shape.rich_message(part), f"{name} plain")
        self._plain.add(message_id)
        if index in self._unknown:  # the first try may have arrived, with other words
            await self._edit_plain(message_id, replace(part, final=True))
        return message_id

    async def _post_card(self, part: FeishuMessage, index: int, name: str) -> str:
        card_id = await self._cards.create_entity(shape.card_json(part, self._topic))
        content = {"type": "card", "data": {"card_id": card_id}}
        message_id = await self._sender.send("interactive", content, name, quote=part.quote)
        self._cards.remember(message_id, card_id)
        if index in self._unknown:
            await self._adopt_earlier_post(message_id, card_id, part)
        return message_id

    async def _adopt_earlier_post(self, message_id: str, card_id: str, part: FeishuMessage) -> None:
        """The first try may have arrived: then its message is there, and shows another card."""
        try:
            if await self._cards.find_entity(message_id) != card_id:
                await self._cards.replace_card(message_id, shape.card_json(part, self._topic))
        except Refused:
            with suppress(Refused):
                await self._recall_message(message_id)
            raise

    async def edit(self, message_id: str, part: FeishuMessage) -> None:
        if message_id in self._plain:
            await self._edit_plain(message_id, part)
            return
        try:
            await self._change_card(message_id, self._shown.get(message_id), part)
        except (TryLater, OutcomeUnknown):
            self._shown.pop(message_id, None)
            raise
        except Refused as error:
            self._shown.pop(message_id, None)
            if not part.final:  # the whole card comes next: it may have stopped streaming, as it does after ten minutes
                raise TryLater(str(error), 0.5) from None
            log.warning("feishu.card_lost message=%s reason=%s", message_id, error)
            with suppress(Refused):
                await self._recall_message(message_id)
            self._gone[self._index.get(message_id, 0)] = message_id
            raise MessageMissing(str(error)) from None
        self._shown[message_id] = part

    async def _change_card(self, message_id: str, shown: FeishuMessage | None, part: FeishuMessage) -> None:
        """The least that makes a card show `part`."""
        grown = shown and not part.final and shown.markdown and part.markdown and replace(shown, text=part.text) == part
        if grown:
            await self._cards.write_text(message_id, "text", part.markdown)
        elif shown and part.final and replace(shown, final=True) == part:
            await self._cards.change_settings(message_id, shape.card_json(part, self._topic)["config"])
        else:
            await self._cards.replace_card(message_id, shape.card_json(part, self._topic))

    async def _edit_plain(self, message_id: str, part: FeishuMessage) -> None:
        if not part.final:
            return  # it can be edited twenty times only
        body = {"msg_type": "post", "content": orjson.dumps(shape.rich_message(part)).decode()}
        try:
            await self._calls("PUT", f"im/v1/messages/{message_id}", body)
        except (ScopeMissing, ChatGone):
            raise
        except ApiRefusal as error:
            self._gone[self._index.get(message_id, 0)] = message_id
            raise MessageMissing(str(error)) from None

    async def delete(self, message_id: str) -> None:
        self._gone[self._index.get(message_id, 0)] = message_id
        try:
            await self._recall_message(message_id)
        except MessageMissing:
            raise
        except Refused:  # too old: it cannot go, but it can be emptied
            await self._cards.replace_card(message_id, shape.card_json(FeishuMessage("·", final=True), self._topic))

    async def _recall_message(self, message_id: str) -> None:
        try:
            await self._calls("DELETE", f"im/v1/messages/{message_id}")
        except ApiRefusal as error:
            raise (MessageMissing(str(error)) if error.code in _LOST_CODES else error) from None
