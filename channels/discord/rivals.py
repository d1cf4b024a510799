"""A second Fawn on the same token: Discord gives every event to both. Who comes too late to an answer stands by.

Nothing tells one instance of the other but what it finds done already: its thread opened on a message that just came,
an interaction answered, or a message of the bot that is not its own: after the question and before its own answer, in
place of its own post (the same nonce), or before it has done anything at all. The one that finds this takes no more
messages. It holds them until the other one shows a sign, and takes them itself when there is none for a while, or when
a button or command is left unanswered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from agent.conversation import Message, Unreadable
from channels.base import Receipt
from channels.discord.places import moment

log = logging.getLogger(__name__)

STANDBY = "Standby: another Fawn answers on this token. It takes over when the other falls silent."
CROWD = 1000  # rooms that are remembered

Event = Message | Unreadable


class Room:
    """What was posted in a channel or thread lately, as ids: by us as (the message it answers, ours), by the other."""

    def __init__(self) -> None:
        self.flying = 0  # posts of ours under way
        self.failed = 0  # …that failed: they may be there all the same
        self.unclear: list[str] = []  # messages of the bot that came meanwhile
        self.ours: deque[tuple[int, int]] = deque(maxlen=20)
        self.theirs: deque[int] = deque(maxlen=20)


class Rivals:
    """What is known of another instance. `withdraw(room, message)` takes a needless answer of ours away."""

    def __init__(self, patience: float, withdraw: Callable[[str, str], None]) -> None:
        self._patience = patience
        self._withdraw = withdraw
        self._own: deque[str] = deque(maxlen=5000)  # ids of what we made
        self._known: set[str] = set()
        self._rooms: defaultdict[str, Room] = defaultdict(Room)
        self._heard: dict[str, float] = {}  # the bot's latest messages → when the gateway told of them (loop time)
        self._held: deque[tuple[float, Event]] = deque()
        self._started = time.time()
        self._sign = 0.0  # when the other was last seen (loop time)
        self.standing = False
        self.me = ""  # the bot's user id

    # ------------------------------------------------------------ ours

    def own(self, made: str) -> None:
        """A message or thread of ours."""
        if made in self._known:
            return
        if len(self._own) == self._own.maxlen:
            self._known.discard(self._own[0])
        self._own.append(made)
        self._known.add(made)

    def mine(self, made: str) -> bool:
        return made in self._known

    @contextmanager
    def posting(self, room: str) -> Iterator[None]:
        """While a post is under way nobody knows whose the bot's messages are."""
        place = self._rooms[room]
        place.flying += 1
        try:
            yield
        except BaseException:
            place.failed += 1
            raise
        else:
            place.failed = 0  # what may have failed before had the same nonce
        finally:
            place.flying -= 1
            if not place.flying:
                unclear, place.unclear = place.unclear, []
                for made in unclear:
                    self._judge(room, made)

    def answered(self, room: str, made: str, to: str) -> None:
        """We posted this, in answer to `to`."""
        self.own(made)
        if to.isdecimal():
            self._rooms[room].ours.append((int(to), int(made)))

    # ------------------------------------------------------------ theirs

    def met(self, how: str) -> None:
        """The other was faster: stand by."""
        self._sign = asyncio.get_running_loop().time()
        if not self.standing:
            self.standing = True
            log.warning("discord.standby reason=%s", how)

    def spoke(self, room: str, made: str) -> None:
        """The gateway tells of a message of the bot."""
        now = asyncio.get_running_loop().time()
        if len(self._heard) > CROWD:
            self._heard = {known: at for known, at in self._heard.items() if at > now - 60}
        if len(self._rooms) > CROWD:
            self._rooms = defaultdict(Room, {known: place for known, place in self._rooms.items() if place.flying})
        self._heard[made] = now
        if self._rooms[room].flying:
            self._rooms[room].unclear.append(made)
        else:
            self._judge(room, made)

    def worked(self, made: str) -> None:
        """The gateway tells that a message of the bot was edited: on standby a sign that the other is at work."""
        if self.standing and not self.mine(made):
            self.met("it works")

    def opened(self, topic: str) -> None:
        """The other opened the thread on this message: the answer in it will be its, too."""
        self._rooms[topic].theirs.append(int(topic) + 1)
        self.met("it had opened the thread already")

    def taken(self, room: str, to: str) -> bool:
        """The other answered this message in this room."""
        return to.isdecimal() and any(theirs > int(to) for theirs in self._rooms[room].theirs)

    def made(self, message: str, begun: float, same: bool) -> bool:
        """Whether a post that we began then gave a message of the other's back: the gateway had told of it before, or
        it is not the `same` and younger than this process (an older one is what a crash left of ours)."""
        if self.mine(message):
            return False
        return self._heard.get(message, begun) < begun or (not same and moment(message) > self._started)

    def _judge(self, room: str, made: str) -> None:
        place = self._rooms[room]
        if self.mine(made):
            return
        if place.failed:
            place.failed -= 1
            self.own(made)
            return
        theirs = int(made)
        place.theirs.append(theirs)
        late = [ours for to, ours in place.ours if to < theirs < ours]
        if self.standing or late or not self._own:
            self.met("it answers")
        for ours in late:
            self._withdraw(room, str(ours))

    # ------------------------------------------------------------ standing by

    def hold(self, events: Sequence[Event]) -> None:
        """Keep what the other should answer."""
        now = asyncio.get_running_loop().time()
        self._held.extend((now, event) for event in events)

    async def watch(self, offer: Callable[[Sequence[Event]], Awaitable[list[Receipt]]]) -> None:
        """Until cancelled: drop what the other answered, take over what it did not."""
        while True:
            await asyncio.sleep(min(1.0, self._patience / 4))
            while self._held and self._held[0][0] <= self._sign:
                self._held.popleft()
            now = asyncio.get_running_loop().time()
            if self.standing and self._held and now - self._held[0][0] >= self._patience:
                _, event = self._held.popleft()
                if Receipt.ACCEPTED in await offer([event]):
                    self.take_over(f"the other has been silent for {self._patience:.0f} s")
            if self._held and not self.standing:
                rest, self._held = [event for _, event in self._held], deque()
                await offer(rest)

    def take_over(self, how: str) -> None:
        """Nobody else answers."""
        log.warning("discord.takeover reason=%s", how)
        self.standing = False
