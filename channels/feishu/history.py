"""Read Feishu's history: missed messages, people's names, quoted messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import quote as quote_path

from agent.messages import Kind, Message, Quote, omitted
from channels.base import CatchUpSource, ChannelError, LastEvent, Refused
from channels.feishu.api import ApiRefusal, FeishuApi, ScopeMissing
from channels.feishu.events import FeishuAccount, author_of, parse_message
from channels.feishu.message_content import CONTACT, FORWARDED_TEXT, MessageContent, parse_content
from channels.shared.caches import LatestDict

log = logging.getLogger(__name__)

PAGE_SIZE = 50
AS_READ = {"with_sender_name": "true", "card_msg_content_type": "user_card_content"}  # cards whole (visible_text.py)
MAX_FORWARDED = 50  # messages of a bundle
MAX_TOPICS = 100  # the latest are read after an absence
MAX_QUOTE_CHARS = 4_000
MAX_NAMES = 10_000
NAME_SECONDS = 1.0  # for a name, before its event is stored: Feishu waits three for the answer to a click
NAME_PAUSE_SECONDS = 60.0  # without looks, after one that failed
TYPED = frozenset({"text", "post"})  # kinds of messages whose text their author typed
GONE_STATES = ("is_frozen", "is_resigned", "is_exited")  # `is_unjoin` has not joined yet
EDIT_SECONDS = 10.0  # a message that waited longer for its turn may have been edited

Json = Mapping[str, Any]


class FeishuHistory:
    """Reads messages of the past. Raises ChannelError."""

    def __init__(self, api: FeishuApi) -> None:
        self._api = api
        self.tenant = ""  # of the app, once an event has named it
        self._names: LatestDict[str, str] = LatestDict(MAX_NAMES)
        self._names_from = 0.0  # when names are asked for again before an event is stored
        self._chat_modes: dict[str, str] = {}  # chat → "p2p", "group" or "topic"

    # ------------------------------------------------------------ context of a message

    async def enrich(self, message: Message, earlier: int, since: float, me: FeishuAccount) -> Message:
        """Add the author's name, the edited text, quoted and forwarded messages, and those above it."""
        joins = bool(earlier) and message.thread.topic not in ("", message.id)
        items: list[Json] = []
        if message.kind is Kind.CHAT and (joins or _may_differ(message)):
            items = await self._get_message(message.id)
        own = items[0] if items else {}
        name = await self._person_name(own.get("sender") or {"id": message.author.id})
        message = replace(message, author=replace(message.author, name=name or message.author.name))
        if own.get("updated"):
            message = replace(message, text=parse_content(_as_event(own), me.open_id).text)
        if message.text.startswith(CONTACT):
            person = message.text.removeprefix(CONTACT)
            message = replace(message, text=f"{CONTACT}{await self._person_name({'id': person})}")
        quotes, files = list(message.quotes), list(message.attachments)
        if message.text == FORWARDED_TEXT:
            quotes += [await self._make_quote(item, me, "forward") for item in islice(items[1:], MAX_FORWARDED)]
        if message.reply_to:
            found = (await self._get_message(message.reply_to))[:1]
            quotes += [] if found else [Quote("", "", "unread")]
            for item in found:
                if _author_of(item) != me.app_id:  # the conversation contains the bot's own messages already
                    quotes.append(await self._make_quote(item, me, "reply"))
                    files += parse_content(_as_event(item), me.open_id).attachments
        if joins and own.get("thread_id"):
            quotes += await self._thread_above(str(own["thread_id"]), message, earlier, since, me)
        elif earlier and not joins and not message.private and message.kind is Kind.CHAT:
            quotes += await self._talk_above(message, earlier, since, me)
        return replace(
            message,
            quotes=tuple(each for each in quotes if each.text or each.kind in ("unread", "omitted")),
            attachments=tuple(files),
        )

    async def _thread_above(
        self, thread: str, message: Message, limit: int, since: float, me: FeishuAccount
    ) -> list[Quote]:
        """Return the root of a topic and its last messages above this one, and whether some are left out."""
        if limit < 1:
            return []
        latest = await self._earlier_messages(_in_thread(thread), message, limit + 1, since, me)
        gap = [omitted(None)] if len(latest) > limit else []
        latest, topic = latest[-limit:], message.thread.topic
        found = (await self._get_message(topic))[:1] if gap and not since else []
        root = [await self._make_quote(each, me, "earlier") for each in found if _author_of(each) != me.app_id]
        return [*root, *gap, *latest]

    async def _talk_above(self, message: Message, limit: int, since: float, me: FeishuAccount) -> list[Quote]:
        """Return the last messages of the group above one that begins a topic. In a group of topics there are none."""
        chat = message.thread.chat
        try:
            if await self._chat_mode(chat) == "topic":
                return []
            end = int(message.time) + 1
            query: Json = {"container_id_type": "chat", "container_id": chat, "end_time": end}
            return await self._earlier_messages(query, message, limit, since, me)
        except ScopeMissing as error:
            log.info("feishu.no_talk chat=%s reason=%s", chat, error)
            return []

    async def _earlier_messages(
        self, query: Json, message: Message, limit: int, since: float, me: FeishuAccount
    ) -> list[Quote]:
        found: list[Json] = []
        async for item in self._list_messages({**query, "sort_type": "ByCreateTimeDesc"}):
            moment = int(item["create_time"]) / 1000
            if moment <= since or len(found) >= limit:
                break
            if _author_of(item) == me.app_id:
                self._api.own_posts.check(str(item["message_id"]), moment)
            if moment < message.time and _author_of(item) != me.app_id and item["message_id"] != message.id:
                found.append(item)
        return [await self._make_quote(item, me, "earlier") for item in reversed(found)]

    async def _chat_mode(self, chat: str) -> str:
        if chat not in self._chat_modes:
            self._chat_modes[chat] = str((await self._api("GET", f"im/v1/chats/{chat}")).get("chat_mode", "group"))
        return self._chat_modes[chat]

    async def _make_quote(self, item: Json, me: FeishuAccount, kind: Any) -> Quote:
        content = MessageContent() if item.get("deleted") else parse_content(_as_event(item), me.open_id)
        text = content.text or ", ".join(file.name for file in content.attachments)
        sender = item.get("sender") or {}
        name = await self._person_name(sender) or "somebody"
        author = author_of(sender, self.tenant)
        is_ours = bool(self.tenant) and sender.get("tenant_key") == self.tenant and not author.bot
        is_member = is_ours and kind != "forward" and item.get("msg_type") in TYPED
        return Quote(name, text[:MAX_QUOTE_CHARS], kind, author.id, str(item.get("message_id") or ""), is_member)

    async def _person_name(self, sender: Json) -> str:
        """Return the display name of a person, or the id where the app may not read the name."""
        id = str(sender.get("id", ""))
        if name := sender.get("sender_name"):
            self._names[id] = str(name)
        if id not in self._names and id.startswith("ou_"):
            try:
                answer = await self._api("GET", f"contact/v3/users/{id}", query={"user_id_type": "open_id"})
                self._names[id] = str(answer["user"]["name"])
            except (ApiRefusal, KeyError) as error:  # no permission for the directory: it is asked only once
                log.info("feishu.no_name reason=%s", error)
                self._names[id] = id
        return self._names.get(id, id)

    async def named(self, message: Message) -> Message:
        """Return an event with the name of its author, which Feishu tells only who asks for it; as it is where the app
        may not read it, or no answer comes in time."""
        author = message.author
        if author.name != author.id or not author.id or time.monotonic() < self._names_from:
            return message
        try:
            async with asyncio.timeout(NAME_SECONDS):
                name = await self._person_name({"id": author.id})
        except (ChannelError, TimeoutError) as error:
            log.info("feishu.no_name reason=%s", error or "no answer in time")
            self._names_from = time.monotonic() + NAME_PAUSE_SECONDS
            return message
        return replace(message, author=replace(author, name=name))

    async def is_gone(self, person: str) -> bool | None:
        """Return whether the account was suspended, or its owner resigned or exited; None where the app may not know.

        open.feishu.cn/document/server-docs/contact-v3/user/get: `status` needs contact:user.employee:readonly. An
        account outside of the app's contact scope is refused (41050), as an unknown one is.
        """
        try:
            answer = await self._api(
                "GET", f"contact/v3/users/{quote_path(person, safe='')}", query={"user_id_type": "open_id"}
            )
        except ApiRefusal as error:
            log.info("feishu.no_status reason=%s", error)
            return None
        status = (answer.get("user") or {}).get("status")
        return any(status.get(each) is True for each in GONE_STATES) if isinstance(status, dict) else None

    # ------------------------------------------------------------ missed messages

    async def missed_messages(
        self, heard: Sequence[LastEvent], past: CatchUpSource, me: FeishuAccount
    ) -> AsyncIterator[list[Message]]:
        """Yield the messages since each chat's and topic's last event, oldest first; the inbox drops known ones."""
        oldest = time.time() - past.hours * 3600
        chats = [entry for entry in heard if not entry.topic]
        topics = sorted((entry for entry in heard if entry.topic), key=lambda entry: entry.time)[-MAX_TOPICS:]
        try:
            for entry in (*chats, *topics):
                try:
                    yield (await self._messages_since(entry, max(entry.time, oldest), me))[-past.most :]
                except ScopeMissing:
                    raise
                except Refused as error:  # the chat is gone
                    log.info("feishu.no_history chat=%s reason=%s", entry.chat, error)
        except ScopeMissing as error:
            log.warning("feishu.no_catch_up reason=%s", error)

    async def _messages_since(self, entry: LastEvent, since: float, me: FeishuAccount) -> list[Message]:
        query: dict[str, str | int] = {"sort_type": "ByCreateTimeAsc"}
        if entry.topic:
            root = await self._get_message(entry.topic)
            if not root or not root[0].get("thread_id"):
                return []
            query |= {"container_id_type": "thread", "container_id": str(root[0]["thread_id"])}
        else:
            query |= {"container_id_type": "chat", "container_id": entry.chat, "start_time": int(since)}
        mode = await self._chat_mode(entry.chat)
        missed = []
        async for item in self._list_messages(query):
            if int(item["create_time"]) / 1000 >= since and not item.get("deleted"):
                event = {"message": {**_as_event(item), "chat_type": mode}, "sender": item["sender"]}
                message = parse_message(event, me, "")
                if message is not None and not message.author.bot:
                    missed.append(message)
        return missed

    # ------------------------------------------------------------ calls

    async def _get_message(self, message_id: str) -> list[Json]:
        """Return a message, followed by those of its bundle; nothing when it cannot be read."""
        query = {"user_id_type": "open_id", **AS_READ}
        try:
            answer = await self._api("GET", f"im/v1/messages/{message_id}", query=query)
        except ScopeMissing:
            raise
        except ApiRefusal as error:  # recalled, or older than the bot's membership
            log.info("feishu.no_message id=%s reason=%s", message_id, error)
            return []
        return list(answer.get("items") or ())

    async def _list_messages(self, query: Mapping[str, str | int]) -> AsyncIterator[Json]:
        query = {**query, "page_size": PAGE_SIZE, **AS_READ}
        while True:
            answer = await self._api("GET", "im/v1/messages", query=query)
            for item in answer.get("items") or ():
                yield item
            page = str(answer.get("page_token") or "")
            if not answer.get("has_more") or not page:
                return
            query = {**query, "page_token": page}


def _may_differ(message: Message) -> bool:
    """Whether a message has to be read: a bundle, or one that waited, because Feishu sends no event for an edit."""
    return message.text == FORWARDED_TEXT or time.time() - message.time > EDIT_SECONDS


def _in_thread(thread: str) -> dict[str, str | int]:
    """Return the query of a topic's messages, which takes no times (…/im-v1/message/list)."""
    return {"container_id_type": "thread", "container_id": thread}


def _as_event(item: Json) -> Json:
    """Convert a message of the history to the shape of an event's."""
    return {**item, "message_type": item["msg_type"], "content": (item.get("body") or {}).get("content")}


def _author_of(item: Json) -> str:
    return str((item.get("sender") or {}).get("id", ""))
