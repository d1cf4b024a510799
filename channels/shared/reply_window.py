"""Reply on platforms that let a bot write for some hours only and never change a message.

Nothing streams there. The stored id of a message is "ID/DIGEST" of what it shows: showing the same again is no edit.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Protocol, TypeVar

import orjson

from agent.blocks import View
from catalogue import N_, _
from channels.base import CatchUpSource, NotStored, Refused, StateStore, TryLater, WaitsForPerson
from channels.shared.reply_writer import MessageRenderer

CLOSED = N_("this person has to write first: {platform} lets a bot answer for {hours} hours")
LOOK_SECONDS = 5.0  # between two looks whether a window has opened: they cost no call
MARGIN_SECONDS = 60.0  # before its end in which nothing is begun
KEPT = "window "  # begins the name of what is kept, before the chat


class WindowClosed(WaitsForPerson):
    """The person has to write before the bot may. What waits is sent then; waiting is no attempt."""

    def __init__(self, platform: str, hours: float) -> None:
        super().__init__(_(CLOSED, platform=platform, hours=f"{hours:g}"), LOOK_SECONDS)


@dataclass(slots=True)
class _Window:
    opened: float  # Unix time of the person's last message; 0: unknown
    posts: int = 0  # since then
    closed_until: float = 0.0  # Unix time, after a refusal


class ReplyWindows:
    """The windows of all chats, each `seconds` long, for at most `budget` posts (0: any number).

    A chat of which nothing is known counts as open: the platform says when it is not. What was posted, and what the
    platform refused, is kept in `state`, before the next post: a new process knows it without a refused call.
    """

    def __init__(self, platform: str, seconds: float, budget: int = 0) -> None:
        self.state: StateStore | None = None
        self._platform = platform
        self._seconds = seconds
        self._budget = budget
        self._windows: dict[str, _Window] = {}

    async def restore(self, source: CatchUpSource, channel: str, workspace: str) -> None:
        """Learn after a start when each person wrote last, and what was posted since then. Raises NotStored."""
        gap = await source.open_gap(channel, workspace)
        for event in gap.heard:
            if not event.topic and event.chat not in self._windows:
                self._windows[event.chat] = _Window(event.time)
        await source.close_gap(gap)
        if self.state is None:
            return
        kept = await self.state.load()
        known = {name.removeprefix(KEPT): _load(text) for name, text in kept.items() if name.startswith(KEPT)}
        for chat, window in known.items():
            if chat not in self._windows or window.opened >= self._windows[chat].opened:
                self._windows[chat] = window
        over = [chat for chat in known if self._is_over(self._windows[chat])]
        if over:
            await self.state.save({f"{KEPT}{chat}": None for chat in over})

    def open(self, chat: str, at: float) -> None:
        """Note a message of the person. The same one again, and an older one that came late, change nothing."""
        known = self._windows.get(chat)
        if known is None or at > known.opened:
            self._windows[chat] = _Window(at)

    async def close(self, chat: str, seconds: float = math.inf) -> WindowClosed:
        """Note that the platform refused a post, until the person writes or for so long; return the error to raise."""
        known = self._windows.setdefault(chat, _Window(0.0))
        known.closed_until = time.time() + min(seconds, self._seconds)
        with suppress(NotStored):  # else the next process learns it by a refused post
            await self._keep(chat, known)
        return WindowClosed(self._platform, self._seconds / 3600)

    def check(self, chat: str) -> None:
        """Raise WindowClosed where nothing may be posted now."""
        known, now = self._windows.get(chat), time.time()
        if known is None:
            return
        if self._is_over(known) or now < known.closed_until or (self._budget and known.posts >= self._budget):
            raise WindowClosed(self._platform, self._seconds / 3600)

    def _is_over(self, window: _Window) -> bool:
        return bool(window.opened) and time.time() > window.opened + self._seconds - MARGIN_SECONDS

    async def spend(self, chat: str) -> None:
        """Count a post right before it. Raises TryLater where that cannot be kept."""
        known = self._windows.setdefault(chat, _Window(0.0))
        known.posts += 1
        try:
            await self._keep(chat, known)
        except NotStored as error:
            known.posts -= 1
            raise TryLater(str(error)) from error

    def give_back(self, chat: str) -> None:
        """Take back a post that the platform did not take. The next one keeps the number."""
        if (known := self._windows.get(chat)) and known.posts:
            known.posts -= 1

    async def _keep(self, chat: str, window: _Window) -> None:
        if self.state is not None:
            until = max((window.opened or time.time()) + self._seconds, window.closed_until)
            text = orjson.dumps(astuple(window)).decode()
            await self.state.save({f"{KEPT}{chat}": text}, of=chat, until=until)


def _load(text: str) -> _Window:
    opened, posts, closed_until = orjson.loads(text)
    return _Window(float(opened), int(posts), float(closed_until))


UNCHANGEABLE = N_("{platform} cannot change a message.")


class Digested(Protocol):
    """A message, and what tells whether it shows the same as another one."""

    @property
    def digest(self) -> str: ...


M = TypeVar("M", bound=Digested)


def digest_of(shown: bytes) -> str:
    """Return the digest of what a message shows."""
    return hashlib.blake2b(shown, digest_size=6).hexdigest()


class UnchangeableRenderer(MessageRenderer[M]):
    """The part of a renderer that such platforms share."""

    def __init__(self, platform: str, typing: Callable[[], Awaitable[None]]) -> None:
        self._platform = platform
        self._typing = typing

    def render(self, view: View) -> list[M]:
        """Show nothing of a running turn: the typing action is enough, and costs no message."""
        return []

    async def edit(self, message_id: str, part: M) -> None:
        """Do nothing where the message shows this. Raises Refused for anything else."""
        if not message_id.endswith(f"/{part.digest}"):
            raise Refused(_(UNCHANGEABLE, platform=self._platform))

    async def delete(self, message_id: str) -> None:
        """Leave a message: nothing can be taken back."""

    async def typing(self) -> None:
        await self._typing()
