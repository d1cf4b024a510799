"""Rig of Discord: topic 0 is Jane's direct chat, topic n the thread on one of her mentions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Kind, Message, Thread
from agent.setting import Secret
from channels import discord
from channels.base import Health
from channels.discord import DiscordSettings
from channels.discord.body import DOCUMENT_NAME
from tests.fakes.discord import CHANNEL, GUILD, JANE, TOKEN, FakeDiscord
from tests.fakes.discord_world import Shown
from tests.fakes.server import until
from tests.support.rigs.base import ABILITIES, Call
from tests.support.rigs.platform import FakeRig, FakeWire

CALLS: dict[Call, tuple[str, ...]] = {
    "post": ("createMessage",),
    "edit": ("editMessage",),
    "delete": ("deleteMessage",),
    "upload": ("createMessage",),
    "album": ("createMessage",),
    "any": ("*",),
}


class DiscordWire(FakeWire):
    """The fake, in the terms of the contract."""

    def __init__(self, rig: DiscordRig) -> None:
        super().__init__(rig.server, CALLS)
        self._rig = rig

    def where(self, topic: int) -> dict[str, Any]:
        return {"chat": int(self._rig.room(topic))}

    def count(self, call: Call) -> int:
        wanted = CALLS[call]
        calls = [each for each in self._rig.server.calls if each.method in wanted or "*" in wanted]
        return len([each for each in calls if bool(each.files) == (call == "upload") or call == "any"])

    def topics(self) -> set[int]:
        known = {self._rig.room(topic): topic for topic in self._rig.topics}
        known |= {self._rig.room(0): 0}
        methods = ("createMessage", "editMessage", "deleteMessage")
        return {known[call.channel] for call in self._rig.server.calls_of(*methods) if call.channel in known}


class DiscordRig(FakeRig):
    """One server, one channel, Jane."""

    name = "discord"
    other = "1077"
    # The history counts, and events of names name no person.
    can = frozenset(ABILITIES) - {"kept", "title_events", "early_files"}

    def __init__(self, server: FakeDiscord, settings: DiscordSettings) -> None:
        super().__init__(lambda: discord.connect(settings))
        self.server = server
        self.topics: dict[int, str] = {}  # topic → the message its thread hangs on
        self._last: tuple[str, str] = ("", "")  # the last message: its room and id
        self._token = ""

    @property
    def wire(self) -> DiscordWire:
        return DiscordWire(self)

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeDiscord() as server:
            server.heartbeat = 0.5
            plain = DiscordSettings(token=Secret(TOKEN), base_url=server.api_url, gateway_url=server.gateway_url)
            async with cls(server, replace(plain, **{"per_channel": 4.0, **settings})).running() as rig:
                yield rig

    async def back(self) -> None:
        await super().back()
        await until(lambda: self.channel.readiness().health is Health.READY)

    # ------------------------------------------------------------ people

    def room(self, topic: int) -> str:
        """Return the channel id of a topic; its thread exists once it was opened."""
        if not topic:
            return self.server.direct().id
        if topic not in self.topics:
            opening = self.server.say(f"topic {topic}", CHANNEL, quiet=True)
            self.topics[topic] = opening["id"]
            self.server.thread(CHANNEL, f"topic {topic}", JANE, opening["id"])
        return self.topics[topic]

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        room = self.room(topic)
        self._last = room, self.server.say(text, room, user=by or JANE, mention=mention and bool(topic))["id"]

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.send_file(name, data, caption)

    def amend(self, text: str) -> None:
        self.server.amend(self._last[1], text)

    def withdraw(self) -> None:
        self.server.withdraw(self._last[1])

    def react(self, topic: int = 0) -> None:
        self.server.react(self.server.visible(self.room(topic))[-1].id, self.room(topic))

    def rate(self, mark: str, topic: int = 0) -> None:
        self.server.react(self.server.visible(self.room(topic))[-1].id, self.room(topic), mark)

    def unrate(self, mark: str, topic: int = 0) -> None:
        self.server.unreact(self.server.visible(self.room(topic))[-1].id, self.room(topic), mark)

    async def begin_thread(self, text: str) -> Message:
        self.server.say(text, CHANNEL, mention=True)
        return await self.box.next(len(self.box.messages) + 1)

    def title(self, thread: Thread) -> str:
        return self.server.rooms[thread.topic].name

    def retitle(self, thread: Thread, title: str) -> None:
        self.server.rename(thread.topic, title)

    def depart(self, person: str) -> None:
        self.server.left |= {(guild, person) for guild in self.server.guilds}

    def erase(self, topic: int = 0) -> None:
        self.server.withdraw(self.server.visible(self.room(topic))[-1].id, self.room(topic))

    def erase_silently(self, topic: int = 0) -> Callable[[], object]:
        return self.server.withdraw_silently(self.server.visible(self.room(topic))[-1].id, self.room(topic))

    def command(self, text: str) -> None:
        name, _, words = text.partition(" ")
        self._token = self.server.slash(name, words)

    async def ask_by_handle(self, text: str) -> Message:
        """A native command: its answer may have a way of its own."""
        self.command("status")
        return await self.box.next(kind=Kind.COMMAND)

    def used_handle(self) -> bool:
        return bool(self.server.calls_of("editOriginal"))

    def buttons(self, topic: int = 0) -> list[str]:
        shown = self.server.visible(self.room(topic))
        return [label for label, _ in shown[-1].buttons] if shown else []

    def offers(self, topic: int = 0) -> list[str]:
        return [label for shown in self.server.visible(self.room(topic)) for label, _ in shown.buttons]

    def labels(self, topic: int = 0) -> list[str]:
        return [label for label, _ in self.server.visible(self.room(topic))[-1].styles]

    def danger(self, topic: int = 0) -> list[str]:
        return [label for label, style in self.server.visible(self.room(topic))[-1].styles if style == 4]

    def folded(self, topic: int = 0) -> list[str]:
        lines = [line for text in self.visible(topic) for line in text.split("\n")]
        small = [re.sub(r"\\(.)", r"\1", line.removeprefix("-# ")) for line in lines if line.startswith("-# ")]
        return [part for line in small[:1] for part in [line]] + [
            part for line in small[1:] for part in line.split(" · ")
        ]

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        self._token = self.server.press(label, self.room(topic), by or JANE)

    def felt(self) -> bool:
        return bool(self.server.interactions[self._token]["answers"])

    def thread(self, topic: int = 0) -> Thread:
        if not topic:
            return Thread("discord", "@me", self.room(0))
        return Thread("discord", GUILD, CHANNEL, self.room(topic))

    def visible(self, topic: int = 0) -> list[str]:
        """The rest of a long answer is shown as its text."""
        room = self.room(topic)
        return ["\n".join(filter(None, [self._text(room, each), each.embed])) for each in self.server.visible(room)]

    def _text(self, room: str, shown: Shown) -> str:
        if shown.files == (DOCUMENT_NAME,):
            [file] = self.server.rooms[room].messages[shown.id]["attachments"]
            return self.server.files[file["id"]].decode()
        return "\n".join(filter(None, [shown.text, *shown.files]))

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return [person for each in self.server.visible(self.room(topic)) for person in each.pinged]

    def commands(self) -> list[str]:
        return [command["name"] for command in self.server.commands]
