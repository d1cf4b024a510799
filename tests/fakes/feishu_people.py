"""Actions of people in the fake Feishu, as events."""

from __future__ import annotations

import time
import uuid
from typing import Any

import orjson

from tests.fakes.feishu_rest import Methods
from tests.fakes.feishu_world import APP, BOT, DIRECT, JANE, TENANT, Said
from tests.fakes.server import Json

BOT_MENTION = {"key": "@_user_1", "id": {"union_id": "on_bot", "user_id": "", "open_id": BOT}, "name": "Fawn"}


class People(Methods):
    """The users' side. Each action returns the message (or the event's id); the server implements `deliver`."""

    def deliver(self, event: Json) -> str:
        raise NotImplementedError

    def event(self, kind: str, event: Json, event_id: str = "") -> Json:
        """An event of schema 2.0."""
        header = {
            "event_id": event_id or uuid.uuid4().hex,
            "event_type": kind,
            "create_time": str(int(time.time() * 1000)),
            "token": "",
            "app_id": APP,
            "tenant_key": TENANT,
        }
        return {"schema": "2.0", "header": header, "event": event}

    def message(
        self,
        content: Json,
        kind: str = "text",
        *,
        chat: str = DIRECT,
        sender: str = JANE,
        parent: str = "",
        in_thread: bool = True,
        mentions: list[Json] | None = None,
        tenant: str = TENANT,
        silent: bool = False,
        event_id: str = "",
    ) -> Said:
        """A person posts. `parent` is the message it answers (in its topic, if there is one or `in_thread`);
        `silent`: no event is sent."""
        place: Json = {}
        if parent:
            answered = self.messages[parent]
            place = self.reply_to(answered, in_thread)
        self.chats.setdefault(chat, "group")
        said = self.add(chat, sender, kind, content, mentions=mentions or [], **place)
        if not silent:
            self.deliver(self.received(said, tenant, event_id))
        return said

    def received(self, said: Said, tenant: str = TENANT, event_id: str = "") -> Json:
        """The event of a message."""
        raw: Json = {
            "message_id": said.id,
            "create_time": str(said.time),
            "update_time": str(said.time),
            "chat_id": said.chat,
            "chat_type": "p2p" if self.chats[said.chat] == "p2p" else "group",
            "message_type": said.kind,
            "content": orjson.dumps(said.content).decode(),
            "user_agent": "fake",
        }
        if said.mentions:
            raw["mentions"] = [{**m, "tenant_key": TENANT} for m in said.mentions]
        places = {"root_id": said.root, "parent_id": said.parent, "thread_id": said.thread}
        raw |= {key: value for key, value in places.items() if value}
        who = {"union_id": f"on_{said.sender}", "user_id": "", "open_id": said.sender}
        sender = {"sender_id": who, "sender_type": "user", "tenant_key": tenant}
        return self.event("im.message.receive_v1", {"sender": sender, "message": raw}, event_id or f"ev_{said.id}")

    def send(self, text: str, *, chat: str = DIRECT, mention: bool | None = None, **more: Any) -> Said:
        """A person writes; in a group with a mention of the bot, unless stated otherwise."""
        named = self.chats.get(chat, "group") != "p2p" if mention is None else mention
        mentions = [*([BOT_MENTION] if named else []), *more.pop("mentions", [])]
        return self.message({"text": f"@_user_1 {text}" if named else text}, chat=chat, mentions=mentions, **more)

    def upload(self, name: str, data: bytes, kind: str = "file", **more: Any) -> Said:
        """A person sends a file, an image, a voice message (`audio`) or a video (`media`)."""
        key = f"{'img' if kind == 'image' else 'file'}_v3_{uuid.uuid4().hex}"
        self.files[key] = (name, data)
        content: Json = {"image_key": key} if kind == "image" else {"file_key": key, "file_name": name}
        if kind == "audio":
            content = {"file_key": key, "duration": 2000}
        return self.message(content, kind, **more)

    def forward(self, *texts: str, chat: str = DIRECT, author: str = JANE, **more: Any) -> Said:
        """A person forwards a bundle of messages."""
        bundle = self.message(
            {"content": "Merged and Forwarded Message"}, "merge_forward", chat=chat, silent=True, **more
        )
        for text in texts:
            said = self.add(chat, author, "text", {"text": text})
            said.inside = bundle.id
        self.deliver(self.received(bundle))
        return bundle

    def edit(self, message_id: str, text: str) -> None:
        """A person edits a message. The event only names it; its new text is read from the API."""
        said = self.messages[message_id]
        said.content = {"text": "".join(f"<p>{line}</p>" for line in text.split("\n"))}
        said.edits += 1
        self.deliver(self.event("im.message.updated_v1", {"message": {"message_id": said.id, "chat_id": said.chat}}))

    def recall(self, message_id: str) -> None:
        said = self.messages[message_id]
        said.deleted = True
        event = {"message_id": said.id, "chat_id": said.chat, "recall_time": str(self.now()), "recall_type": "owner"}
        self.deliver(self.event("im.message.recalled_v1", event))

    def react(self, message_id: str, emoji: str = "CrossMark", person: str = JANE) -> str:
        self.messages[message_id].reactions.append((person, emoji))
        return self._reaction("created", message_id, emoji, person)

    def unreact(self, message_id: str, emoji: str = "THUMBSUP", person: str = JANE) -> str:
        self.messages[message_id].reactions.remove((person, emoji))
        return self._reaction("deleted", message_id, emoji, person)

    def _reaction(self, kind: str, message_id: str, emoji: str, person: str) -> str:
        event = {
            "message_id": message_id,
            "reaction_type": {"emoji_type": emoji},
            "operator_type": "user",
            "user_id": {"open_id": person, "union_id": f"on_{person}", "user_id": ""},
            "action_time": str(self.now()),
        }
        return self.deliver(self.event(f"im.message.reaction.{kind}_v1", event))

    def press(self, label: str, *, chat: str = DIRECT, root: str = "", person: str = JANE) -> str:
        """A person clicks a button of the bot's last card that has it; returns the frame's id (see `answers`)."""
        cards = [said for said in reversed(self.bot_messages(chat, root)) if said.card]
        buttons = [(said, e) for said in cards for e in self.cards[said.card].elements() if e["tag"] == "button"]
        shown, button = next((said, b) for said, b in buttons if b["text"]["content"] == label)
        event = {
            "operator": {"tenant_key": TENANT, "open_id": person, "union_id": f"on_{person}"},
            "token": f"c-{uuid.uuid4().hex}",
            "action": {"value": button["behaviors"][0]["value"], "tag": "button", "timezone": "UTC"},
            "host": "im_message",
            "context": {"open_message_id": shown.id, "open_chat_id": chat},
        }
        event_id = self.deliver(self.event("card.action.trigger", event))
        card = self.cards[shown.card]
        self.clicks[event_id] = card, card.json
        return event_id

    def choose(self, key: str, person: str = JANE) -> str:
        """A person chooses an entry of the bot's menu."""
        self.direct(person)
        operator = {"operator_name": self.names.get(person, person), "operator_id": {"open_id": person}}
        event = {"operator": operator, "event_key": key, "timestamp": int(time.time())}
        return self.deliver(self.event("application.bot.menu_v6", event))
