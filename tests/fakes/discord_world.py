"""The state of the fake Discord: people, servers, channels, messages, in API v10 format."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.fakes.server import Json

EPOCH = 1_420_070_400_000
BOT, JANE, MAX = "1000000000000001", "2000000000000001", "2000000000000002"
GUILD, CHANNEL, ROLE = "3000000000000001", "4000000000000001", "5000000000000001"
TOKEN = "MTAwMA.Gabcde.fake-token"
TEXT, DM, THREAD = 0, 1, 11
EVERYTHING = str((1 << 50) - 1)
SUPPRESS, EPHEMERAL, LOADING, COMPONENTS = 1 << 2, 1 << 6, 1 << 7, 1 << 15
TIERS = (10 << 20, 10 << 20, 50 << 20, 100 << 20)


class ApiError(Exception):
    """An answer with Discord's error code."""

    def __init__(self, status: int, code: int, message: str, errors: Json | None = None) -> None:
        super().__init__(message)
        self.status, self.body = status, {"message": message, "code": code} | ({"errors": errors} if errors else {})


GUIDE = Path(__file__).parents[2] / "docs" / "setup-discord.md"
PERMISSIONS = {  # discord.com/developers/docs/topics/permissions; the names of the guide → ours
    "View Channels": "view",
    "Send Messages": "send",
    "Create Public Threads": "threads",
    "Send Messages in Threads": "send in threads",
    "Read Message History": "history",
    "Attach Files": "files",
    "Embed Links": "embeds",
    "Manage Threads": "manage threads",
}


def guide_permissions() -> set[str]:
    """Return the permissions that the guide asks for."""
    [step] = re.findall(r"(?s)these\s+permissions: (.*?)\n\d\.", GUIDE.read_text())
    return {PERMISSIONS[" ".join(name.split())] for name in re.findall(r"(?s)\*(.+?)\*", step)}


@dataclass(slots=True)
class Room:
    """A channel, a thread (`parent`) or a direct chat (`person`). `denied`: what the bot may not do there
    (view, send, threads, history, files, embeds)."""

    id: str
    type: int
    name: str = ""
    guild: str = ""
    parent: str = ""
    person: str = ""
    owner: str = JANE
    archived: bool = False
    renamed: int = 0  # by the bot
    denied: set[str] = field(default_factory=set)
    messages: dict[str, Json] = field(default_factory=dict)
    typing: list[float] = field(default_factory=list)  # time.monotonic() of each


@dataclass(frozen=True, slots=True)
class Shown:
    """A message of the bot as people see it."""

    id: str
    text: str
    embed: str
    buttons: tuple[tuple[str, str], ...]  # (label, custom id), those of menus: (label, "custom id=value")
    styles: tuple[tuple[str, int], ...]  # of the buttons, by label
    files: tuple[str, ...]
    pinged: tuple[str, ...]
    reply_to: str
    previews: bool  # links in it show a preview
    edits: int


class World:
    """Servers, channels, people and messages. Subclasses send events by `push`."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.base = ""  # where files are served, set when the server runs
        self.people: dict[str, Json] = {}
        self.left: set[tuple[str, str]] = set()  # (server, person): other known people are members everywhere
        self.guests: set[tuple[str, str]] = set()  # (server, person): invited to one voice channel
        self.rooms: dict[str, Room] = {}
        self.guilds: dict[str, Json] = {}
        self.files: dict[str, bytes] = {}
        self.links = 1  # the generation of file links: older ones have run out
        self.commands: list[Json] = []
        self.granted = guide_permissions()  # what the bot may do where nothing is denied
        self.content_intent = True  # Message Content Intent is switched on for the bot
        self.person(BOT, "fawn")
        self.person(JANE, "Jane")
        self.person(MAX, "Max")
        self.server(GUILD)
        self.channel(CHANNEL, "ops")

    def push(self, event: str, data: Json) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ objects

    def snow(self, ago: float = 0.0) -> str:
        """Return a new id that is this many seconds old."""
        return str((int((time.time() - ago) * 1000) - EPOCH) << 22 | next(self._ids) & 0x3FFFFF)

    def person(self, id: str, name: str = "", bot: bool = False) -> Json:
        if id not in self.people:
            user: Json = {
                "id": id,
                "username": (name or f"user{id[-4:]}").lower(),
                "discriminator": "0",
                "avatar": None,
            }
            user |= {"global_name": name or None, "banner": None, "public_flags": 0, "accent_color": None}
            if bot or id == BOT:
                user |= {"bot": True}
            self.people[id] = user
        return self.people[id]

    def server(self, id: str, tier: int = 0) -> None:
        """A server of the bot."""
        self.guilds.setdefault(id, {"id": id, "name": f"Acme {id[-2:]}"})["premium_tier"] = tier

    def channel(self, id: str, name: str = "", guild: str = GUILD, denied: tuple[str, ...] = ()) -> Room:
        """A text channel of a server; `denied` is what the bot may not do there."""
        if id not in self.rooms:
            self.server(guild, self.guilds.get(guild, {}).get("premium_tier", 0))
            self.rooms[id] = Room(id, TEXT, name or f"channel-{id[-4:]}", guild)
            self.push("CHANNEL_CREATE", self.room_json(self.rooms[id]))
        self.rooms[id].denied = set(denied)
        return self.rooms[id]

    def direct(self, person: str = JANE) -> Room:
        """The direct chat of a person and the bot."""
        self.person(person)
        return self.rooms.setdefault(f"6{person[1:]}", Room(f"6{person[1:]}", DM, person=person))

    def thread(self, parent: str, name: str, owner: str = JANE, id: str = "", *, quiet: bool = False) -> Room:
        """A thread, on the message `id` of the parent or on its own; `quiet`: its event is still on the way."""
        room = Room(id or self.snow(), THREAD, name, self.rooms[parent].guild, parent, owner=owner)
        room.denied = set(self.rooms[parent].denied)
        self.rooms[room.id] = room
        if starter := self.rooms[parent].messages.get(room.id):
            starter["flags"] |= 1 << 5  # HAS_THREAD
            starter["thread"] = self.room_json(room)
        if not quiet:
            self.push("THREAD_CREATE", self.room_json(room) | {"newly_created": True})
        return room

    # ------------------------------------------------------------ wire format

    def room_json(self, room: Room) -> Json:
        last = next(reversed(room.messages), None)
        made: Json = {"id": room.id, "type": room.type, "last_message_id": last, "flags": 0}
        if room.type == DM:
            return made | {"recipients": [self.people[room.person]]}
        made |= {"guild_id": room.guild, "name": room.name, "rate_limit_per_user": 0}
        if room.type == THREAD:
            meta = {"archived": room.archived, "auto_archive_duration": 1440, "archive_timestamp": stamp()}
            meta |= {"locked": False, "create_timestamp": stamp()}
            count = len(room.messages)
            made |= {"parent_id": room.parent, "owner_id": room.owner, "thread_metadata": meta, "member_count": 1}
            return made | {"message_count": count, "total_message_sent": count}
        return made | {"position": 0, "permission_overwrites": [], "nsfw": False, "parent_id": None, "topic": None}

    def guild_json(self, id: str) -> Json:
        role = {"id": id, "name": "@everyone", "permissions": EVERYTHING, "position": 0, "color": 0, "hoist": False}
        role |= {"colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None}, "managed": False}
        role |= {"mentionable": False, "flags": 0}
        own = role | {"id": ROLE, "name": "fawn", "managed": True, "position": 1, "tags": {"bot_id": BOT}}
        mine = [room for room in self.rooms.values() if room.guild == id and "view" not in room.denied]
        made: Json = {"id": id, **self.guilds[id], "icon": None, "owner_id": JANE, "roles": [role, own]}
        for name in ("emojis", "stickers", "features", "voice_states", "presences", "stage_instances"):
            made[name] = []
        for name in ("verification_level", "default_message_notifications", "explicit_content_filter", "mfa_level"):
            made[name] = 0
        for name in ("afk_channel_id", "system_channel_id", "rules_channel_id", "public_updates_channel_id", "banner"):
            made[name] = None
        for name in ("splash", "discovery_splash", "description", "vanity_url_code", "application_id"):
            made[name] = None
        return made | {
            "channels": [self.room_json(room) for room in mine if room.type == TEXT],
            "threads": [self.room_json(room) for room in mine if room.type == THREAD and not room.archived],
            "members": [{"user": self.people[BOT], **MEMBER, "roles": [ROLE]}],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "joined_at": stamp(),
            "member_count": 3,
            "large": False,
            "unavailable": False,
            "afk_timeout": 300,
            "premium_subscription_count": 0,
            "preferred_locale": "en-US",
            "nsfw_level": 0,
            "system_channel_flags": 0,
            "premium_progress_bar_enabled": False,
        }

    def message(self, room: Room, author: str, content: str, *, ago: float = 0.0, **more: Any) -> Json:
        """A new message; its event is the caller's."""
        made: Json = {"id": self.snow(ago), "channel_id": room.id, "author": self.people[author], "content": content}
        made |= {"timestamp": stamp(time.time() - ago), "edited_timestamp": None, "tts": False, "pinned": False}
        made |= {"mention_everyone": False, "mentions": [], "mention_roles": [], "attachments": [], "embeds": []}
        made |= {"type": 0, "flags": 0, "components": []} | more
        room.messages[made["id"]] = made
        return made

    def event(self, message: Json) -> Json:
        """A message as the gateway tells it: with server and member. The member of its author only."""
        room = self.rooms[message["channel_id"]]
        shape = {key: value for key, value in message.items() if not key.startswith("_")}
        return shape | ({"guild_id": room.guild, "member": MEMBER} if room.guild else {})

    def attachment(self, room: Room, name: str, data: bytes, mime: str = "") -> Json:
        """A stored file; its link is that of today."""
        id = self.snow()
        self.files[id] = data
        url = f"{self.base}/attachments/{room.id}/{id}/{name}?ex={self.links}&is=1&hm={self.links}"
        made: Json = {"id": id, "filename": name, "size": len(data), "url": url, "proxy_url": url}
        return made | ({"content_type": mime} if mime else {})

    def refreshed(self, message: Json) -> Json:
        """A message with links of today."""
        for file in message.get("attachments", ()):
            file["url"] = f"{file['url'].partition('?')[0]}?ex={self.links}&is=1&hm={self.links}"
        for snapshot in message.get("message_snapshots", ()):
            self.refreshed(snapshot["message"])
        return {key: value for key, value in message.items() if not key.startswith("_")}

    # ------------------------------------------------------------ visible messages

    def visible(self, channel: str = "") -> list[Shown]:
        """The bot's messages in a channel (default: Jane's direct chat)."""
        room = self.rooms.get(channel) if channel else self.direct()
        found = room.messages.values() if room else ()
        said = [message for message in found if message["type"] in (0, 19, 20) and not message["flags"] & LOADING]
        return [shown(message) for message in said if message["author"]["id"] == BOT]


MEMBER: Json = {"roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}


def walked(components: Iterable[Json] | None) -> Iterator[Json]:
    """Yield components and those inside of them."""
    for part in components or ():
        yield part
        yield from walked(part.get("components"))


def displays(components: Iterable[Json] | None) -> list[str]:
    """Return the texts of components."""
    return [part["content"] for part in walked(components) if part["type"] == 10]


def stamp(at: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if at is None else at, UTC).isoformat()


def shown(message: Json) -> Shown:
    """A message on a screen: SUPPRESS_EMBEDS hides embeds, disabled buttons cannot be pressed."""
    suppressed = bool(message["flags"] & SUPPRESS)
    buttons: list[tuple[str, str]] = []
    styles: list[tuple[str, int]] = []
    for part in walked(message["components"]):
        styles += [(part["label"], part["style"])] if part["type"] == 2 else []
        if part["type"] == 2 and not part.get("disabled"):
            buttons.append((part["label"], part["custom_id"]))
        for option in part.get("options", ()):
            buttons.append((option["label"], f"{part['custom_id']}={option['value']}"))
    bare = message["content"].replace("<http", "")
    top = [part["content"] for part in message["components"] if part["type"] == 10]
    inside = displays([part for part in message["components"] if part["type"] == 17])
    return Shown(
        message["id"],
        "\n".join(filter(None, [message["content"], *top])),
        "\n".join([*([] if suppressed else [embed.get("description", "") for embed in message["embeds"]]), *inside]),
        tuple(buttons),
        tuple(styles),
        tuple(file["filename"] for file in message["attachments"]),
        tuple(message.get("_pinged", ())),
        (message.get("message_reference") or {}).get("message_id", ""),
        "http" in bare and not suppressed,
        message.get("_edits", 0),
    )
