"""Post a reply on Feishu: streaming cards in its thread, rich messages where Feishu refuses cards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.blocks import Final, View
from agent.messages import Thread
from channels.base import ChatGone, OutcomeUnknown, Refused, SentMessages, TryLater, find_sent_message
from channels.feishu import card_renderer
from channels.feishu.api import ApiRefusal, FeishuApi
from channels.feishu.card_api import CardApi, dump_json
from channels.feishu.card_renderer import FeishuMessage, card_json, rich_message
from channels.shared.reply_writer import MessageMissing, MessageRenderer
from channels.shared.texts import with_options

IDEMPOTENT_POSTS = 25  # with unknown outcomes: about 20 minutes, less than the hour in which Feishu knows a uuid
_PERSON = "ou_"  # begins an open_id: the private chat with this person
_TARGET_MISSING_CODES = frozenset({230011, 230050, 230054, 230110, 230019})  # of a reply: recalled or invisible
_MESSAGE_MISSING_CODES = frozenset({230011, 230110, 230001, 230050})  # of a change


class MessageSender:
    """Posts messages into a thread, each at most once: for an hour the platform recognizes a repeated `uuid`."""

    def __init__(self, api: FeishuApi, thread: Thread, key: str, to: str = "") -> None:
        self._api = api
        self._thread = thread
        self._key = key
        self._to = to.partition("/")[0] if to.startswith("om_") else ""

    def post_uuid(self, name: str) -> str:
        """Return the uuid of a post, the same in every process."""
        seed = f"{self._thread} {self._to} {self._key} {name}"
        return f"{self._key}-{hashlib.blake2b(seed.encode(), digest_size=10).hexdigest()}"

    async def send_message(self, kind: str, content: Mapping[str, Any], name: str, *, quote: bool = False) -> str:
        """Post a message, in the thread's topic if it has one; return its id.

        `name` distinguishes the messages of a reply. A `quote` refers to the message it answers.
        """
        body: dict[str, Any] = {"msg_type": kind, "content": dump_json(content), "uuid": self.post_uuid(name)}
        topic = self._thread.topic
        if topic:
            body["reply_in_thread"] = True
        targets = [self._to, topic] if topic else [self._to] if quote else []
        for target in dict.fromkeys(filter(None, targets)):
            try:
                return await self._post(f"im/v1/messages/{target}/reply", body)
            except ApiRefusal as error:
                if error.code not in _TARGET_MISSING_CODES:
                    raise
        if topic:
            raise ChatGone("the message to answer is not there any more")
        body["receive_id"] = self._thread.chat
        kind = "open_id" if self._thread.chat.startswith(_PERSON) else "chat_id"
        return await self._post("im/v1/messages", body, {"receive_id_type": kind})

    async def _post(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> str:
        return str((await self._api.post_message(path, body, query))["message_id"])


class FeishuRenderer(MessageRenderer[FeishuMessage]):
    """Renders and posts the cards of one reply.

    The stored id of a card is "message/card", so that a restarted process can edit it; that of a rich message is only
    the message's.
    """

    def __init__(self, api: FeishuApi, cards: CardApi, thread: Thread, posts: SentMessages, to: str) -> None:
        self._api = api
        self._cards = cards
        self._topic = thread.topic
        self._key = posts.key
        self._sender = MessageSender(api, thread, posts.key, to)
        self._posts = posts
        self._prepared: dict[int, str] = {}  # the card of a post, by the part's index
        self._unknown = {post.index for post in posts.known if post.id is None}
        self._shown: dict[str, FeishuMessage] = {}  # stored id → what its card shows

    def render(self, view: View) -> list[FeishuMessage]:
        return card_renderer.render_live(view, self._key)

    def render_final(self, final: Final) -> list[FeishuMessage]:
        return card_renderer.render_final_cards(final, self._key, direct=not self._topic)

    def placeholder(self) -> FeishuMessage:
        return FeishuMessage("…")

    def plain(self, part: FeishuMessage) -> FeishuMessage:
        text = with_options(part.text, part.options)
        return replace(part, text=text, progress="", ask_id="", options=(), approval=False, command="", plain=True)

    # ------------------------------------------------------------ calls

    async def prepare_post(self, part: FeishuMessage, index: int) -> str:
        """Return the card to post. A repeated post has the card of the first attempt, which may be visible already."""
        if part.plain:
            return ""
        earlier = find_sent_message(self._posts, index)
        card_id = earlier.handle if earlier else ""
        if card_id:
            try:
                await self._replace_card(card_id, part)
            except Refused:  # its message was deleted, or it is too old
                card_id = ""
        self._prepared[index] = card_id = card_id or await self._create_card(part)
        return card_id

    async def post(self, part: FeishuMessage, index: int, replaced: str) -> str:
        try:
            if part.plain:
                return await self._post_rich(part, index, replaced)
            stored_id = await self._post_card(part, index)
        except OutcomeUnknown:
            self._unknown.add(index)
            raise
        self._shown[stored_id] = part
        return stored_id

    async def _post_rich(self, part: FeishuMessage, index: int, replaced: str) -> str:
        message_id = await self._sender.send_message("post", rich_message(part), f"{index} {replaced} plain")
        if index in self._unknown:  # an earlier post with this uuid may show another text
            await self._edit_plain(message_id, replace(part, final=True))
        return message_id

    async def _post_card(self, part: FeishuMessage, index: int) -> str:
        """Post the prepared card and return its stored id. The uuid is that of the card, also after a restart."""
        card_id = self._prepared[index]
        content = {"type": "card", "data": {"card_id": card_id}}
        message_id = await self._sender.send_message("interactive", content, f"{index} {card_id}", quote=part.quote)
        return f"{message_id}/{card_id}"

    async def _create_card(self, part: FeishuMessage) -> str:
        """Create the card of a part. Buttons come in a second call, because each has the card's id."""
        first = replace(part, options=(), command="") if part.keeps_buttons else part
        card_id = await self._cards.create_card(card_json(first, self._topic, ""))
        if part.keeps_buttons:
            await self._replace_card(card_id, part)
        return card_id

    async def _replace_card(self, card_id: str, part: FeishuMessage) -> None:
        json = card_json(part, self._topic, card_id)
        await self._cards.replace_card(card_id, json)
        if part.keeps_buttons:
            self._cards.questions[card_id] = json

    async def edit(self, message_id: str, part: FeishuMessage) -> None:
        message, _, card_id = message_id.partition("/")
        if not card_id:
            await self._edit_plain(message, part)
            return
        shown = self._shown.pop(message_id, None)
        try:
            await self._change_card(card_id, shown, part)
        except Refused as error:
            if not part.final:  # a card stops streaming after ten minutes: the next edit replaces the whole card
                raise TryLater(str(error), 0.5) from None
            raise
        self._shown[message_id] = part

    async def _change_card(self, card_id: str, shown: FeishuMessage | None, part: FeishuMessage) -> None:
        """Show `part` with the smallest change."""
        has_text = shown and shown.text_with_mention and part.text_with_mention and not part.plain
        if shown and has_text and not part.final and replace(shown, text=part.text) == part:
            await self._cards.stream_text(card_id, "text", part.text_with_mention)
        elif shown and part.final and replace(shown, final=True) == part:
            await self._cards.change_settings(card_id, card_json(part, self._topic, card_id)["config"])
        else:
            await self._replace_card(card_id, part)

    async def _edit_plain(self, message_id: str, part: FeishuMessage) -> None:
        if not part.final:
            return  # Feishu allows only twenty edits
        body = {"msg_type": "post", "content": dump_json(rich_message(part))}
        await self._api("PUT", f"im/v1/messages/{message_id}", body)

    async def delete(self, message_id: str) -> None:
        message, _, card_id = message_id.partition("/")
        try:
            await self._recall_message(message)
        except MessageMissing:
            raise
        except Refused:  # too old to be recalled
            if card_id:
                await self._replace_card(card_id, FeishuMessage("·", final=True))

    async def _recall_message(self, message_id: str) -> None:
        try:
            await self._api("DELETE", f"im/v1/messages/{message_id}")
        except ApiRefusal as error:
            raise (MessageMissing(str(error)) if error.code in _MESSAGE_MISSING_CODES else error) from None
