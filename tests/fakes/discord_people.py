"""Actions of people in the fake Discord: each sends its event and returns the message."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.fakes.discord_rest import Rest, guild_of
from tests.fakes.discord_world import BOT, CHANNEL, EVERYTHING, GUILD, JANE, MEMBER, THREAD, Room, stamp, walked
from tests.fakes.server import Json


class People(Rest):
    """The users' side. `channel` is a channel, a thread or (default) Jane's direct chat."""

    _told: tuple[str, Json]

    def room(self, channel: str = "") -> Room:
        return self.rooms[channel] if channel else self.direct()

    def say(
        self,
        text: str,
        channel: str = "",
        *,
        user: str = JANE,
        mention: bool = False,
        reply_to: str = "",
        files: list[tuple[str, bytes]] | None = None,
        names: tuple[str, ...] = (),
        forward: str = "",
        sticker: bool = False,
        ago: float = 0.0,
        quiet: bool = False,
    ) -> Json:
        """A person writes. `names` are people mentioned besides the bot, `forward` is the text of a forwarded
        message, `ago` its age in seconds, `quiet` sends no event (no client was connected)."""
        room = self.room(channel)
        self.person(user)
        words = " ".join([f"<@{BOT}>"] * mention + [f"<@{name}>" for name in names] + [text])
        mentions = [self.people[each] for each in ([BOT] if mention else []) + list(names)]
        made = self.message(room, user, words.strip(), ago=ago, mentions=mentions)
        for name, data in files or ():
            mime = "image/png" if name.endswith(".png") else "audio/ogg" if name.endswith(".ogg") else "text/plain"
            made["attachments"].append(self.attachment(room, name, data, mime))
        if reply_to:
            original = room.messages.get(reply_to)
            made |= {"type": 19, "message_reference": {"type": 0, "message_id": reply_to, "channel_id": room.id}}
            made["referenced_message"] = original and {k: v for k, v in original.items() if k != "referenced_message"}
            if original and original["author"] not in mentions:
                mentions.append(original["author"])  # an answer notifies
        if forward:
            inside = {"content": forward, "timestamp": stamp(), "attachments": [], "embeds": [], "mentions": []}
            made["message_reference"] = {"type": 1, "message_id": self.snow(60), "channel_id": CHANNEL}
            made["message_snapshots"] = [{"message": inside | {"type": 0, "flags": 0, "components": []}}]
        if sticker:
            made["sticker_items"] = [{"id": self.snow(), "name": "Wave", "format_type": 1}]
        if not quiet:
            self.tell("MESSAGE_CREATE", self.event(made))
        return made

    def integrate(self, username: str, content: str = "", channel: str = CHANNEL, **more: Any) -> Json:
        """An integration posts by a webhook; `more` are embeds and components."""
        room, id = self.room(channel), self.snow(90)
        author = {"id": id, "username": username, "avatar": None, "discriminator": "0000", "bot": True}
        self.people[id] = author
        made = self.message(room, id, content, webhook_id=id, **more)
        self.tell("MESSAGE_CREATE", self.event(made))
        return made

    def send_file(self, name: str, data: bytes, caption: str = "", channel: str = "", *, mention: bool = False) -> Json:
        """A person sends a file."""
        return self.say(caption, channel, mention=mention, files=[(name, data)])

    def tell(self, event: str, data: Json) -> None:
        """Send the event of an action; it can be redelivered."""
        self._told = (event, data)
        self.push(event, data)

    def redeliver(self) -> None:
        """Send the event of the last action again."""
        self.push(*self._told)

    def amend(self, message: str, text: str, channel: str = "") -> None:
        """The author edits a message."""
        found = self.room(channel).messages[message]
        found |= {"content": text, "edited_timestamp": stamp()}
        self.tell("MESSAGE_UPDATE", self.event(found))

    def withdraw(self, message: str, channel: str = "") -> None:
        """Delete a message."""
        self.withdraw_silently(message, channel)()

    def withdraw_silently(self, message: str, channel: str = "") -> Callable[[], object]:
        """Delete a message. The event comes when the result is called."""
        room = self.room(channel)
        del room.messages[message]
        return partial(self.push, "MESSAGE_DELETE", {"id": message, "channel_id": room.id} | guild_of(room))

    def react(self, message: str, channel: str = "", emoji: str = "❌", user: str = JANE) -> None:
        told, room = self._reaction(message, channel, emoji, user), self.room(channel)
        told |= {"message_author_id": room.messages[message]["author"]["id"]}
        if room.guild:
            told |= {"member": MEMBER | {"user": self.people[user]}}
        self.tell("MESSAGE_REACTION_ADD", told)

    def unreact(self, message: str, channel: str = "", emoji: str = "👍", user: str = JANE) -> None:
        """Take a reaction back. Its event names neither the message's author nor the member
        (discord.com/developers/docs/events/gateway-events#message-reaction-remove)."""
        self.tell("MESSAGE_REACTION_REMOVE", self._reaction(message, channel, emoji, user))

    def _reaction(self, message: str, channel: str, emoji: str, user: str) -> Json:
        room = self.room(channel)
        told: Json = {"user_id": user, "channel_id": room.id, "message_id": message, "type": 0, "burst": False}
        return told | {"emoji": {"id": None, "name": emoji}} | guild_of(room)

    def rename(self, thread: str, name: str, user: str = JANE) -> None:
        """A person renames a thread, which says so in it."""
        room = self.rooms[thread]
        room.name = name
        self.push("THREAD_UPDATE", self.room_json(room))
        self.push("MESSAGE_CREATE", self.event(self.message(room, user, name, type=4)))

    def archive(self, thread: str) -> None:
        """Archive a thread, as after a day without messages."""
        self.rooms[thread].archived = True
        self.push("THREAD_UPDATE", self.room_json(self.rooms[thread]))

    def close_channel(self, channel: str) -> None:
        """Delete a channel or thread."""
        room = self.rooms.pop(channel)
        told = {"id": room.id, "guild_id": room.guild, "parent_id": room.parent or None, "type": room.type}
        self.push("THREAD_DELETE" if room.type == THREAD else "CHANNEL_DELETE", self.room_json(room) | told)

    def run_out(self) -> None:
        """Expire the links of all files."""
        self.links += 1

    # ------------------------------------------------------------ interactions

    def press(self, label: str, channel: str = "", user: str = JANE) -> str:
        """A person clicks a button or a menu option of the bot's latest message that has it."""
        room = self.room(channel)
        for found in reversed(list(room.messages.values())):
            for part in walked(found["components"]):
                if part.get("label") == label and not part.get("disabled"):
                    data = {"custom_id": part["custom_id"], "component_type": 2, "id": 1}
                    return self._interaction(room, 3, data, user, message=found)
                for option in part.get("options", ()):
                    if option["label"] == label:
                        data = {"custom_id": part["custom_id"], "component_type": 3, "values": [option["value"]]}
                        return self._interaction(room, 3, data | {"id": 1}, user, message=found)
        raise KeyError(f"no button {label!r}")

    def slash(self, name: str, words: str = "", channel: str = "", user: str = JANE) -> str:
        """A person uses a native command."""
        options = [{"name": "words", "type": 3, "value": words}] if words else []
        known = next((command["id"] for command in self.commands if command["name"] == name), self.snow())
        data = {"id": known, "name": name, "type": 1, "options": options}
        return self._interaction(self.room(channel), 2, data, user)

    def _interaction(self, room: Room, kind: int, data: Json, user: str, **more: object) -> str:
        """Return the token under which `interactions` has the result."""
        id = self.snow()
        token = f"interaction-token-{id}"
        event: Json = {"id": id, "application_id": BOT, "type": kind, "data": data, "channel_id": room.id, "version": 1}
        event |= {"token": token, "channel": self.room_json(room) | {"permissions": EVERYTHING}, "locale": "en-US"}
        event |= {"entitlements": [], "app_permissions": EVERYTHING, "attachment_size_limit": 10 << 20} | more
        event |= {"context": 0 if room.guild else 1, "authorizing_integration_owners": {"0": room.guild or "0"}}
        if room.guild:
            event |= {"guild_id": room.guild, "guild_locale": "en-US"}
            event["guild"] = {"id": GUILD, "locale": "en-US", "features": []}
            event["member"] = MEMBER | {"user": self.person(user), "permissions": EVERYTHING}
        else:
            event["user"] = self.person(user)
        self.interactions[token] = {"event": event, "at": time.monotonic(), "answers": [], "whispers": []}
        self.tell("INTERACTION_CREATE", event)
        return token

    def expire(self, token: str) -> None:
        """Let a quarter of an hour pass for an interaction."""
        self.interactions[token]["at"] -= 901
