"""Read Feishu's history: missed messages, people's names, quoted messages."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from agent.messages import Kind, Message, Quote
from channels.base import CatchUpSource, LastEvent, Receipt, Receive, Refused
from channels.feishu.api import ApiRefusal, FeishuApi, ScopeMissing
from channels.feishu.events import FeishuAccount, parse_message
from channels.feishu.message_content import FORWARDED_TEXT, MessageContent, parse_content

log = logging.getLogger(__name__)

PAGE_SIZE = 50
MAX_FORWARDED = 50  # messages of a bundle
MAX_TOPICS = 100  # read back after an absence, the latest
MAX_QUOTE_CHARS = 4_000  # characters of one quote

Json = Mapping[str, Any]


class History:
    """Reads messages back. Raises ChannelError."""

    def __init__(self, calls: FeishuApi) -> None:
        self._calls = calls
        self._names: dict[str, str] = {}
        self._modes: dict[str, str] = {}  # chat → "p2p", "group" or "topic"

    # ------------------------------------------------------------ what a message refers to

    async def enrich(self, told: Message, earlier: int, me: FeishuAccount) -> Message:
        """The author's name, the text as it is now, what is quoted or forwarded, and what stood in the topic before."""
        items = await self._get_message(told.id) if told.kind is Kind.CHAT else []  # a click's id is that of our card
        own = items[0] if items else {}
        name = await self._person_name(own.get("sender") or {"id": told.author.id})
        told = replace(told, author=replace(told.author, name=name or told.author.name))
        if own.get("updated"):  # edited meanwhile
            told = replace(told, text=parse_content(_as_event(own), me.open_id).text)
        quotes, files = list(told.quotes), list(told.attachments)
        if told.text == FORWARDED_TEXT:
            quotes += [await self._make_quote(item, me, "forward") for item in islice(items[1:], MAX_FORWARDED)]
        if told.reply_to:
            for item in (await self._get_message(told.reply_to))[:1]:
                if _author_of(item) != me.app:  # our own words are in the conversation already
                    quotes.append(await self._make_quote(item, me, "reply"))
                    files += parse_content(_as_event(item), me.open_id).attachments
        if earlier and told.thread.topic not in ("", told.id) and own.get("thread_id"):
            quotes += await self._earlier_messages(str(own["thread_id"]), told, earlier, me)
        kept = tuple(quote for quote in quotes if quote.text)
        return replace(told, quotes=kept, attachments=tuple(files))

    async def _earlier_messages(self, thread: str, told: Message, most: int, me: FeishuAccount) -> list[Quote]:
        query = {"container_id_type": "thread", "container_id": thread, "sort_type": "ByCreateTimeDesc"}
        found: list[Json] = []
        async for item in self._list_messages(query):
            if int(item["create_time"]) / 1000 < told.time and _author_of(item) != me.app:
                found.append(item)
            if len(found) >= most:
                break
        return [await self._make_quote(item, me, "earlier") for item in reversed(found)]

    async def _make_quote(self, item: Json, me: FeishuAccount, kind: Any) -> Quote:
        read = MessageContent() if item.get("deleted") else parse_content(_as_event(item), me.open_id)
        words = read.text or ", ".join(file.name for file in read.attachments)
        return Quote(await self._person_name(item.get("sender") or {}) or "somebody", words[:MAX_QUOTE_CHARS], kind)

    async def _person_name(self, sender: Json) -> str:
        """What people call them; their id where the app may not know."""
        known = str(sender.get("id", ""))
        if name := sender.get("sender_name"):
            self._names[known] = str(name)
        if known not in self._names and known.startswith("ou_"):
            try:
                answer = await self._calls("GET", f"contact/v3/users/{known}", query={"user_id_type": "open_id"})
                self._names[known] = str(answer["user"]["name"])
            except (ApiRefusal, KeyError) as error:  # no permission for the directory: asked once
                log.info("feishu.no_name reason=%s", error)
                self._names[known] = known
        if len(self._names) > 10_000:
            self._names.clear()
        return self._names.get(known, known)

    # ------------------------------------------------------------ what was missed

    async def catch_up(
        self, receive: Receive, places: Sequence[LastEvent], past: CatchUpSource, me: FeishuAccount
    ) -> None:
        """Offer what came since each place was heard, oldest first; the inbox knows what it has."""
        oldest = time.time() - past.hours * 3600
        try:
            topics = sorted((place for place in places if place.topic), key=lambda known: known.time)[-MAX_TOPICS:]
            for place in (*(place for place in places if not place.topic), *topics):
                try:
                    await self._offer_since(place, max(place.time, oldest), receive, past.most, me)
                except ScopeMissing:
                    raise
                except Refused as error:  # a chat that is gone
                    log.info("feishu.no_history chat=%s reason=%s", place.chat, error)
        except ScopeMissing as error:
            log.warning("feishu.no_catch_up reason=%s", error)

    async def _offer_since(
        self, place: LastEvent, since: float, receive: Receive, most: int, me: FeishuAccount
    ) -> None:
        query: dict[str, str | int] = {"sort_type": "ByCreateTimeAsc"}
        if place.topic:
            root = await self._get_message(place.topic)
            if not root or not root[0].get("thread_id"):
                return
            query |= {"container_id_type": "thread", "container_id": str(root[0]["thread_id"])}
        else:
            query |= {"container_id_type": "chat", "container_id": place.chat, "start_time": int(since)}
        if place.chat not in self._modes:
            answer = await self._calls("GET", f"im/v1/chats/{place.chat}")
            self._modes[place.chat] = str(answer.get("chat_mode", "group"))
        mode = self._modes[place.chat]
        events = []
        async for item in self._list_messages(query):
            if int(item["create_time"]) / 1000 < since or item.get("deleted"):
                continue
            told = parse_message({"message": {**_as_event(item), "chat_type": mode}, "sender": item["sender"]}, me, "")
            if told is not None and not told.author.bot:
                events.append(told)
        new = (await receive(events[-most:])).count(Receipt.ACCEPTED) if events and most else 0
        if new:
            log.info("feishu.caught_up chat=%s messages=%d", place.chat, new)

    # ------------------------------------------------------------ calls

    async def _get_message(self, message_id: str) -> list[Json]:
        query = {"user_id_type": "open_id", "with_sender_name": "true"}
        try:
            answer = await self._calls("GET", f"im/v1/messages/{message_id}", query=query)
        except ScopeMissing:
            raise
        except ApiRefusal as error:  # recalled, or from before the bot was here
            log.info("feishu.no_message id=%s reason=%s", message_id, error)
            return []
        return list(answer.get("items") or ())

    async def _list_messages(self, query: Mapping[str, str | int]) -> AsyncIterator[Json]:
        page = ""
        while True:
            more = {"page_token": page} if page else {}
            answer = await self._calls(
                "GET", "im/v1/messages", query={**query, "page_size": PAGE_SIZE, "with_sender_name": "true", **more}
            )
            for item in answer.get("items") or ():
                yield item
            page = str(answer.get("page_token") or "")
            if not answer.get("has_more") or not page:
                return


def _as_event(item: Json) -> Json:
    """A message of the history in the shape of the event."""
    return {**item, "message_type": item["msg_type"], "content": (item.get("body") or {}).get("content")}


def _author_of(item: Json) -> str:
    return str((item.get("sender") or {}).get("id", ""))
