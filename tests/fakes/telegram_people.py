"""Actions of people in the fake Telegram: each returns the message and queues its update."""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.fakes.server import Json
from tests.fakes.telegram_text import TEXT_UNITS, found_entities
from tests.fakes.telegram_world import BOT, JANE, World

GROUP_ANONYMOUS_BOT = {"id": 1087968824, "first_name": "Group", "username": "GroupAnonymousBot"}
CHANNEL_BOT = {"id": 136817688, "first_name": "Channel", "username": "Channel_Bot"}
PHOTO_SIZES = ((90, 60), (320, 213), (800, 533))  # width, height: Telegram gives several, the largest last


class People(World):
    """The users' side."""

    def __init__(self) -> None:
        super().__init__()
        self._albums = itertools.count(1)
        self._clicks = itertools.count(1)

    def say(
        self,
        content: Json,
        *,
        chat: int = JANE,
        user: int = 0,
        topic: int = 0,
        reply_to: int = 0,
        quote: str = "",
        forward_from: str = "",
        album: str = "",
        sent_as: int = 0,
    ) -> Json:
        """Any message: `content` holds the fields of its kind. `user` 0 is the private chat's own person, or Jane.

        `sent_as` is the group for an anonymous admin, or a channel for a person who posts as it. `reply_to` names a
        message of the same chat, `quote` a part of it; `forward_from` is the name of a hidden user.
        """
        room = self.chat(chat)
        extra = dict(content)
        if reply_to:
            original = {k: v for k, v in room.messages[reply_to].items() if k != "reply_to_message"}
            extra["reply_to_message"] = original
            if room.kind == "supergroup" and not topic:
                # A reply outside forums carries the root's id here, without is_topic_message: not a topic.
                extra["message_thread_id"] = original.get("message_thread_id", reply_to)
        if quote:
            extra["quote"] = {"text": quote, "position": 0, "is_manual": True}
        if forward_from:
            extra["forward_origin"] = {
                "type": "hidden_user",
                "date": int(time.time()),
                "sender_user_name": forward_from,
            }
        if album:
            extra["media_group_id"] = album
        author = self.person(user or (chat if chat > 0 else JANE))
        if sent_as:
            anonymous = sent_as == chat
            author = {**(GROUP_ANONYMOUS_BOT if anonymous else CHANNEL_BOT), "is_bot": True}
            channel = {"id": sent_as, "type": "channel", "title": f"Channel {-sent_as}"}
            extra["sender_chat"] = self.chat_object(room) if anonymous else channel
        message = self.post(room, author, extra, topic)
        self.push("message", message)
        return message

    # ------------------------------------------------------------ text

    def send(self, text: str, **where: Any) -> Json:
        """A text. Mentions and commands are marked as Telegram marks them."""
        entities = found_entities(text)
        return self.say({"text": text, **({"entities": entities} if entities else {})}, **where)

    def paste(self, text: str, **where: Any) -> list[Json]:
        """A long paste: the sender's app splits it into messages of 4096."""
        return [self.send(text[i : i + TEXT_UNITS], **where) for i in range(0, len(text), TEXT_UNITS)]

    def edit(self, text: str, message_id: int, *, chat: int = JANE) -> Json:
        """The author changes a message's text."""
        message = self.chat(chat).messages[message_id]
        message |= {"text": text, "edit_date": int(time.time()), "entities": found_entities(text)}
        self.push("edited_message", dict(message))
        return message

    def click(self, data: str, message_id: int, *, chat: int = JANE, user: int = 0) -> str:
        """Click a button under a message of the bot; returns the query's id. Raises ValueError: no such button."""
        message = self.chat(chat).messages[message_id]
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        if not any(button.get("callback_data") == data for row in rows for button in row):
            raise ValueError(f"message {message_id} has no button {data!r}")
        query: Json = {
            "id": str(next(self._clicks)),
            "from": self.person(user or (chat if chat > 0 else JANE)),
            "chat_instance": str(chat),
            "data": data,
            "message": message,
        }
        self.queries[query["id"]] = query
        self.push("callback_query", query)
        return str(query["id"])

    def stop_draft(self, *, chat: int = JANE, topic: int = 0) -> None:
        """Press the stop button of a draft (core.telegram.org/bots/api#messagegenerationstopped)."""
        draft = self.stoppable.pop((chat, topic))
        self.drafts.pop((chat, topic), None)
        where = {"message_thread_id": topic} if topic else {}
        stopped = {"chat": self.chat_object(self.chat(chat)), "draft_id": draft, **where}
        self.push("stopped_message_generation", stopped)

    def react(self, emoji: str, message_id: int, *, chat: int = JANE, user: int = 0, sent_as: int = 0) -> None:
        """Put a reaction on a message in place of the one before; "" takes it back. In groups, only administrators get
        the update (core.telegram.org/bots/api#update)."""
        room = self.chat(chat)
        if message_id not in room.messages:
            raise ValueError(f"no message {message_id}")
        person = self.person(user or (chat if chat > 0 else JANE))
        before = self.given.get((chat, message_id, person["id"]), "")
        reaction = {
            "chat": self.chat_object(room),
            "message_id": message_id,
            **({"actor_chat": self.chat_object(room)} if sent_as else {"user": person}),
            "date": int(time.time()),
            "old_reaction": [{"type": "emoji", "emoji": before}] if before else [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}] if emoji else [],
        }
        self.given[chat, message_id, person["id"]] = emoji
        if room.kind == "private" or room.admin:
            self.push("message_reaction", reaction)

    # ------------------------------------------------------------ files

    def send_document(
        self, name: str, data: bytes, *, caption: str = "", mime: str = "text/csv", size: int = 0, **where: Any
    ) -> Json:
        """A document. `size` may be claimed larger than the data (getFile then refuses above 20 MB)."""
        document = {**self.keep(name, data, mime, size), "file_name": name, "mime_type": mime}
        return self.say({"document": document, **_caption(caption)}, **where)

    def send_photo(self, data: bytes, *, caption: str = "", **where: Any) -> Json:
        """A photo in several sizes: only the largest is `data`, the smaller ones are cut short."""
        sizes: list[Json] = []
        for number, (width, height) in enumerate(PHOTO_SIZES, 1):
            part = data[: len(data) * number // len(PHOTO_SIZES)]
            sizes.append({**self.keep("photo.jpg", part, "photos/jpeg"), "width": width, "height": height})
        return self.say({"photo": sizes, **_caption(caption)}, **where)

    def send_album(self, photos: list[bytes], *, caption: str = "", **where: Any) -> list[Json]:
        """Photos sent together: one message each with a common media_group_id, the caption on the first."""
        album = self.new_album()
        return [
            self.send_photo(photo, caption=caption if number == 0 else "", album=album, **where)
            for number, photo in enumerate(photos)
        ]

    def new_album(self) -> str:
        """A media_group_id, for sending the pieces one by one."""
        return f"1390000000{next(self._albums)}"

    def send_voice(self, data: bytes, **where: Any) -> Json:
        voice = {**self.keep("voice.oga", data, "audio/ogg"), "duration": 3, "mime_type": "audio/ogg"}
        return self.say({"voice": voice}, **where)

    def send_audio(self, data: bytes, *, name: str = "song.mp3", caption: str = "", **where: Any) -> Json:
        audio = {**self.keep(name, data, "audio/mpeg"), "duration": 3, "mime_type": "audio/mpeg", "file_name": name}
        return self.say({"audio": audio, **_caption(caption)}, **where)

    def send_video(self, data: bytes, *, name: str = "clip.mp4", caption: str = "", **where: Any) -> Json:
        kept = self.keep(name, data, "video/mp4")
        video = {**kept, "duration": 3, "width": 64, "height": 48, "mime_type": "video/mp4", "file_name": name}
        return self.say({"video": video, **_caption(caption)}, **where)

    def send_video_note(self, data: bytes, **where: Any) -> Json:
        return self.say(
            {"video_note": {**self.keep("note.mp4", data, "video/mp4"), "duration": 3, "length": 48}}, **where
        )

    # ------------------------------------------------------------ unsupported messages

    def send_sticker(self, **where: Any) -> Json:
        sticker = {**self.keep("sticker.webp", b"RIFF", "stickers/webp"), "type": "regular", "emoji": "🦌"}
        return self.say(
            {"sticker": {**sticker, "width": 512, "height": 512, "is_animated": False, "is_video": False}}, **where
        )

    def send_poll(self, question: str = "Lunch?", **where: Any) -> Json:
        options = [
            {"persistent_id": str(n), "text": text, "voter_count": 0, "text_entities": []}
            for n, text in enumerate(("yes", "no"))
        ]
        flags = {"is_closed": False, "is_anonymous": True, "allows_multiple_answers": False, "allows_revoting": True}
        poll = {"id": "1", "question": question, "options": options, "total_voter_count": 0, "type": "regular", **flags}
        return self.say({"poll": {**poll, "members_only": False}}, **where)

    def send_contact(self, **where: Any) -> Json:
        return self.say({"contact": {"phone_number": "+15550100", "first_name": "Kim"}}, **where)

    def send_location(self, **where: Any) -> Json:
        return self.say({"location": {"latitude": 52.5, "longitude": 13.4}}, **where)

    # ------------------------------------------------------------ topics

    def open_topic(self, text: str, *, name: str = "", chat: int = JANE) -> int:
        """Open a topic of a private chat by writing a text, whose beginning names it unless the person does.

        core.telegram.org/bots/api#forumtopiccreated
        """
        room = self.chat(chat)
        topic = next(number for number in room.ids if number > 1)  # 1 is a forum's General
        self.forum(chat, topic).topics[topic] = name or text[:32]  # type: ignore[index]  # a forum has topics
        created = {"name": name or text[:32], "icon_color": 7322096, **({} if name else {"is_name_implicit": True})}
        self.say({"forum_topic_created": created}, chat=chat, topic=topic)
        self.send(text, chat=chat, topic=topic)
        return topic

    def rename_topic(self, topic: int, name: str, *, chat: int = JANE) -> None:
        """A person renames a topic."""
        self.forum(chat).topics[topic] = name  # type: ignore[index]  # as above
        self.say({"forum_topic_edited": {"name": name}}, chat=chat, topic=topic)

    # ------------------------------------------------------------ changes of chats

    def migrate(self, old: int, new: int) -> None:
        """A group becomes a supergroup: both service messages, and the old id is refused from now on."""
        group, supergroup = self.chat(old), self.chat(new)
        supergroup.title = group.title
        group.moved_to = new
        for room, service in ((group, {"migrate_to_chat_id": new}), (supergroup, {"migrate_from_chat_id": old})):
            self.push("message", self.post(room, self.person(), service))

    def membership(self, chat: int, status: str, *, user: int = 0) -> None:
        """The bot's own membership changes ("kicked": blocked or removed, "member": back)."""
        room = self.chat(chat)
        room.blocked = status in ("kicked", "left")
        new: Json = {"user": BOT, "status": status, **({"until_date": 0} if status == "kicked" else {})}
        change = {
            "chat": self.chat_object(room),
            "from": self.person(user or (chat if chat > 0 else JANE)),
            "date": int(time.time()),
            "old_chat_member": {"user": BOT, "status": "member"},
            "new_chat_member": new,
        }
        self.push("my_chat_member", change)


def _caption(text: str) -> Json:
    if not text:
        return {}
    entities = found_entities(text)
    return {"caption": text, **({"caption_entities": entities} if entities else {})}
