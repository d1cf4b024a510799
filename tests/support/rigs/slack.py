"""Rig of Slack: a direct chat, and threads under messages of a channel as its topics.

The direct chat is one of an app from before Agent View, in which each message would start a conversation of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from agent.messages import Kind, Message, Thread
from agent.setting import Secret
from channels import slack
from channels.base import Reply
from tests.fakes.server import until
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, JANE, OPS, TEAM, FakeSlack, Shown
from tests.support.recording_inbox import Memory
from tests.support.rigs.base import ABILITIES, Call, Rule, Trouble
from tests.support.rigs.platform import FakeRig, FakeWire

DIRECT = f"D{JANE}"
METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("chat.postMessage", "chat.startStream"),
    "edit": ("chat.update", "chat.appendStream", "chat.stopStream"),
    "delete": ("chat.delete",),
    "upload": ("files.completeUploadExternal",),
    "album": ("files.completeUploadExternal",),
    "any": ("*",),
}


class SlackWire(FakeWire):
    """The fake, in the terms of the contract. `roots` are the messages that start the topics."""

    def __init__(self, server: FakeSlack, roots: dict[int, str]) -> None:
        super().__init__(server, METHODS)
        self._fake = server
        self._roots = roots

    def where(self, topic: int) -> dict[str, Any]:
        return {"contains": self._roots[topic] if topic else DIRECT}

    def fault(self, kind: Trouble, call: Call, *, topic: int | None = None, **rule: Unpack[Rule]) -> None:
        if rule.get("code", 500) < 500:
            rule["description"] = "token_revoked" if rule.get("code") == 401 else "invalid_blocks"
        super().fault(kind, call, topic=topic, **rule)

    def topics(self) -> set[int]:
        numbers = {ts: number for number, ts in self._roots.items()}
        found = set()
        for call in self._fake.calls:
            if call.channel:
                post = self._fake.conversation(call.channel).posts.get(str(call.args.get("ts")))
                thread = call.args.get("thread_ts") or (post.thread_ts if post else "")
                found.add(numbers.get(thread, 0))
        return found


class SlackRig(FakeRig):
    """`tests.support.rigs.base.Rig` of Slack."""

    name = "slack"
    other = "U2"
    # Events are not kept, so the history counts. The manifest has one command; the others are its arguments.
    can = frozenset(ABILITIES) - {"documents", "kept", "menu", "early_files"}

    def __init__(self, server: FakeSlack, settings: slack.SlackSettings) -> None:
        super().__init__(lambda: slack.connect(settings))
        self.server = server
        self.settings = settings
        self.roots: dict[int, str] = {}
        self.wire = SlackWire(server, self.roots)
        self._said = ""  # the person's last message in the direct chat
        self._pressed = ""  # the last interaction
        server.agent_view = bool(settings.agent_view)
        server.conversation(DIRECT)

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeSlack() as server:
            plain = slack.SlackSettings(
                Secret(BOT_TOKEN), Secret(APP_TOKEN), base_url=server.api_url, ping_seconds=1.0, agent_view=False
            )
            async with cls(server, replace(plain, **settings)).running() as rig:
                yield rig

    async def back(self) -> None:
        await super().back()
        await until(lambda: self.server.sockets, what="the event socket")

    # ------------------------------------------------------------ people

    def root(self, topic: int) -> str:
        """Return the message that starts a topic, "" for the direct chat."""
        if topic and topic not in self.roots:
            self.roots[topic] = self.server.send(f"about {topic}", user="U2", silent=True)
        return self.roots[topic] if topic else ""

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        if topic:
            words = f"<@{BOT}> {escaped(text)}" if mention else escaped(text)
            self.server.send(words, user=by or JANE, thread=self.root(topic))
        else:
            self._said = self.server.send(escaped(text), DIRECT)

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.send(escaped(caption), DIRECT, files={name: data})

    def amend(self, text: str) -> None:
        self.server.edit(self._said, escaped(text), DIRECT)

    def withdraw(self) -> None:
        self.server.remove(self._said, DIRECT)

    def react(self, topic: int = 0) -> None:
        self.server.react(self._shown(topic).ts, channel=OPS if topic else DIRECT)

    def rate(self, mark: str, topic: int = 0) -> None:
        self.server.react(self._shown(topic).ts, {"👍": "+1", "👎": "-1::skin-tone-3"}[mark], OPS if topic else DIRECT)

    def unrate(self, mark: str, topic: int = 0) -> None:
        self.server.unreact(
            self._shown(topic).ts, {"👍": "+1", "👎": "-1::skin-tone-3"}[mark], OPS if topic else DIRECT
        )

    async def begin_thread(self, text: str) -> Message:
        message = await self.say(text, 7)
        await until(lambda: self.server.conversation(OPS).titles)
        return message

    def title(self, thread: Thread) -> str:
        return self.server.conversation(thread.chat).titles[thread.topic]

    def retitle(self, thread: Thread, title: str) -> None:
        self.server.rename_session(title, thread.topic, thread.chat)

    def depart(self, person: str) -> None:
        self.server.person(person, deleted=True)

    def erase(self, topic: int = 0) -> None:
        self.server.remove(self._shown(topic).ts, OPS if topic else DIRECT)

    def erase_silently(self, topic: int = 0) -> Callable[[], object]:
        return self.server.remove_silently(self._shown(topic).ts, OPS if topic else DIRECT)

    def command(self, text: str) -> None:
        self._pressed = self.server.slash(text, DIRECT)

    async def ask_by_handle(self, text: str) -> Message:
        """A native command: its answer may have a way of its own."""
        self.command("status")
        return await self.box.next(kind=Kind.COMMAND)

    def used_handle(self) -> bool:
        return any(one.only_for for one in self.server.visible(DIRECT))

    def buttons(self, topic: int = 0) -> list[str]:
        return [label for label, *_ in self._shown(topic).buttons]

    def offers(self, topic: int = 0) -> list[str]:
        shown = self.server.visible(OPS, self.root(topic)) if topic else self.server.visible(DIRECT)
        return [label for one in shown for label, *_ in one.buttons]

    def danger(self, topic: int = 0) -> list[str]:
        return [label for label, style in self._shown(topic).styles if style == "danger"]

    def folded(self, topic: int = 0) -> list[str]:
        marks = {"complete": "✓", "error": "✗", "in_progress": "…", "pending": "▸"}
        shown = self.server.visible(OPS, self.root(topic)) if topic else self.server.visible(DIRECT)
        found = []
        for one in shown:
            rows = [row.rpartition(": ") for row in one.tasks]
            found += [one.plan] if one.plan else []
            found += [f"{marks[status]} {title}: {one.details.get(title, '')}" for title, _, status in rows]
            found += [line for line in one.text.split("\n") if line[:1] in "❌⏹" and line]
        return found

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        shown = self.server.visible(OPS, self.root(topic)) if topic else self.server.visible(DIRECT)
        ts = next(one.ts for one in reversed(shown) if label in [known for known, *_ in one.buttons])
        self._pressed = self.server.click(label, ts, OPS if topic else DIRECT, by or JANE)

    def felt(self) -> bool:
        return not self._pressed or self.server.acked(self._pressed)

    def thread(self, topic: int = 0) -> Thread:
        return Thread("slack", TEAM, OPS, self.root(topic)) if topic else Thread("slack", TEAM, DIRECT)

    def visible(self, topic: int = 0) -> list[str]:
        shown = self.server.visible(OPS, self.root(topic)) if topic else self.server.visible(DIRECT)
        return [" ".join(filter(None, (one.text, one.file_name))) for one in shown if not one.only_for]

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return self.server.pinged(OPS, self.root(topic)) if topic else self.server.pinged(DIRECT)

    def _shown(self, topic: int) -> Shown:
        """Return the bot's last public message."""
        shown = self.server.visible(OPS, self.root(topic)) if topic else self.server.visible(DIRECT)
        return [one for one in shown if not one.only_for][-1]


def reply(rig: SlackRig, message: Message, posts: Memory | None = None) -> Reply:
    """Create the reply to a message, as the service does."""
    asker = message.author.id
    return rig.channel.reply(message.thread, posts or Memory(handle=message.reply_handle), to=message.id, asker=asker)


def methods(rig: SlackRig, start: str = "chat.") -> list[str]:
    return [call.method.removeprefix("chat.") for call in rig.server.calls if call.method.startswith(start)]


def shown(rig: SlackRig, topic: int = 7) -> Shown:
    """Return the only message of the bot in a thread, an empty one if there is none."""
    posts = [post for post in rig.server.visible(OPS, rig.root(topic)) if not post.only_for]
    assert len(posts) < 2
    return posts[0] if posts else Shown("", "")


def escaped(text: str) -> str:
    """Return the text as a person's app sends it; a mention in the text counts as one."""
    parts = text.split("<@U1>")
    return "<@U1>".join(part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for part in parts)
