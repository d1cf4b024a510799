"""A second Fawn on the same token: Discord gives every event to both. Who comes too late to an answer stands by.

Nothing tells one instance of the other but what it finds done already: its thread opened on a message that just came,
an interaction answered, a post whose nonce gives somebody else's message back, or, before it has done anything itself,
a new message of the bot. The one that finds this takes no more messages. It holds them until the other one shows a
sign, and takes them itself when there is none for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from agent.conversation import Message, Unreadable
from channels.base import Receipt
from channels.discord_places import moment

log = logging.getLogger(__name__)

STANDBY = "Standby: another Fawn answers on this token. It takes over when the other falls silent."
GRACE = 2.0  # seconds that the answer to a post may come later than the event of it

Event = Message | Unreadable


class Rivals:
    """What is known of another instance. `offer` gives held messages to the inbox."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._own: deque[str] = deque(maxlen=5000)  # ids of what we made
        self._known: set[str] = set()
        self._held: deque[tuple[float, Event]] = deque()
        self._heard: dict[str, float] = {}  # the bot's latest messages → when the gateway told of them (loop time)
        self._started = time.time()
        self._sign = 0.0  # when the other was last seen (loop time)
        self.standing = False
        self.me = ""  # the bot's user id

    # ------------------------------------------------------------ signs

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

    def met(self, how: str) -> None:
        """The other was faster: stand by."""
        self._sign = asyncio.get_running_loop().time()
        if not self.standing:
            self.standing = True
            log.warning("discord.standby reason=%s", how)

    def spoke(self, made: str) -> None:
        """The bot posted a message; by whom shows when our own calls have had time to return."""
        loop = asyncio.get_running_loop()
        if len(self._heard) > 1000:
            self._heard = {known: at for known, at in self._heard.items() if at > loop.time() - 60}
        self._heard[made] = loop.time()
        loop.call_later(0.0 if self.standing else GRACE, self._judge, made)

    def made(self, message: str, begun: float, same: bool) -> bool:
        """Whether a post that we began then gave a message of the other's back: the gateway had told of it before, or
        it is not the `same` and younger than this process (an older one is what a crash left of ours)."""
        if self.mine(message):
            return False
        return self._heard.get(message, begun) < begun or (not same and moment(message) > self._started)

    def _judge(self, made: str) -> None:
        if self.mine(made):
            return
        if self.standing or not self._own:  # it was there before we did anything
            self.met("it answers")

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
            if not self._held or now - self._held[0][0] < self._patience:
                continue
            _, event = self._held.popleft()
            if Receipt.ACCEPTED in await offer([event]):
                log.warning("discord.takeover reason=the other has been silent for %.0f s", self._patience)
                self.standing = False
                rest, self._held = [event for _, event in self._held], deque()
                if rest:
                    await offer(rest)
