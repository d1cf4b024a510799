"""Rigs of DingTalk: a direct chat, and groups, which have no threads. With AI cards, and without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Thread
from agent.setting import Secret
from channels import dingtalk
from tests.fakes.dingtalk import CLIENT, JANE, KIM, SECRET, TEMPLATE, FakeDingTalk, Pushed, group
from tests.support.rigs.base import ABILITIES, Call
from tests.support.rigs.platform import FakeRig, PlacedWire

METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("card.create", "message.send"),
    "edit": ("card.stream", "card.update"),
    "delete": ("message.recall",),
    "upload": ("media.upload",),
    "album": ("message.send",),
    "any": ("*",),
}
DIRECT = f"@{JANE}"


class DingTalkRig(FakeRig):
    """`tests.support.rigs.base.Rig` of DingTalk with a card template."""

    name = "dingtalk"
    other = KIM
    template = TEMPLATE
    # Robots cannot read a history, and get neither edits, deletions nor reactions. In groups, they get only messages
    # that mention them. There are no native commands. A rate limit names no time. Files have no idempotency key, and go
    # one by one. A card has buttons of one colour, only when it is finished: there is Retry, but not Stop.
    can = frozenset(ABILITIES) - {"kept", "catch_up", "earlier", "follow_up", "captions", "amend", "withdraw", "erase"}
    can -= {"reactions", "native", "menu", "retry_after", "files_once", "albums", "titles", "title_events"}
    can -= {"commands", "styles", "folds", "documents", "local_times", "departures", "early_files", "tokens"}

    def __init__(self, server: FakeDingTalk, settings: dingtalk.DingTalkSettings) -> None:
        super().__init__(lambda: dingtalk.connect(settings))
        self.server = server
        self.wire = PlacedWire(server, METHODS)
        self._click: Pushed | None = None  # the last press
        server.places[DIRECT] = 0

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeDingTalk() as server:
            plain = dingtalk.DingTalkSettings(
                client_id=CLIENT,
                client_secret=Secret(SECRET),
                card_template_id=cls.template,
                base_url=server.base_url,
                upload_url=server.base_url,
                per_reply=5.0,
            )
            async with cls(server, replace(plain, **settings)).running() as rig:
                yield rig

    # ------------------------------------------------------------ people

    def chat(self, topic: int) -> str:
        """Return the group of a topic, or the direct chat."""
        if not topic:
            return DIRECT
        self.server.places[group(topic)] = topic
        return group(topic)

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        self.server.send(text, chat=self.chat(topic) if topic else "", mention=mention, sender=by or JANE)

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.upload(name, data)

    def used_handle(self) -> bool:
        """The sign of work on the message was taken off."""
        return bool(self.server.calls_of("reaction.recall"))

    def buttons(self, topic: int = 0) -> list[str]:
        return [button["text"] for button in self.server.buttons(self._last(topic))]

    def offers(self, topic: int = 0) -> list[str]:
        shown = [each for each in self.server.shown if each.chat == self.chat(topic)]
        return [button["text"] for each in shown for button in self.server.buttons(each)]

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        self._click = self.server.press(label, self.chat(topic), by or JANE)

    def felt(self) -> bool:
        return self._click is None or bool(self._click.answers)

    def thread(self, topic: int = 0) -> Thread:
        return Thread("dingtalk", CLIENT, self.chat(topic))

    def visible(self, topic: int = 0) -> list[str]:
        return self.server.visible(self.chat(topic))

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return self.server.pinged(self.chat(topic))

    def _last(self, topic: int) -> Any:
        return [shown for shown in self.server.shown if shown.chat == self.chat(topic)][-1]


class DingTalkMarkdownRig(DingTalkRig):
    """DingTalk without a card template: answers neither stream nor change, and a robot cannot mention anybody."""

    template = ""
    can = DingTalkRig.can - {"live", "edits", "buttons", "once", "mentions"}
