"""Tell operators when the bot is signed out of a platform, once, and in the audit when it is signed in again.

The platform itself cannot be used then: it is said in their chats on other platforms, and pushed where they have that.
What was said is kept, so that a restart says it to nobody again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from bot.base.stored_secrets import CHANNEL, sealer_of
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.service.pings import tell_operators
from bot.storage import channels
from catalogue import N_, _
from channels.base import Channel, Health
from channels.shared.code_sign_in import as_sign_in

LOOK_SECONDS = 2.0
IDLE_SECONDS = 60.0  # where no channel signs in by a code: a reload may bring one
GRACE_SECONDS = 10.0  # signed out for so long: `fawn setup` starts the service before it hands the login over
KEPT = "sign-in {channel}"  # in place of a channel in what channels keep
TOLD = "told"
SIGNED_OUT = N_(
    "**I'm signed out of {channel}**: I read and write nothing there, and what I have to say there waits. {how}"
)
ON_PAGE = N_("Sign me in on my page, under *Service*, or with `fawn setup {channel}` on the machine where I run.")
AT_TERMINAL = N_("Sign me in with `fawn setup {channel}` on the machine where I run.")


class SignInWatch:
    """Looks at the channels that sign in by a code."""

    def __init__(self, store: Database, current: Current, channel: Callable[[str], Channel | None]) -> None:
        self._store = store
        self._current = current
        self._channel = channel
        self._said: dict[str, bool] = {}  # channel → whether it is known to be told, and True while it is

    async def serve(self) -> None:
        """Look until cancelled."""
        while True:
            names = [entry.name for entry in self._current.config.channels]
            for name in names:
                await self._look(name)
            connected = [self._channel(name) for name in names]
            is_needed = any(channel is None or as_sign_in(channel) for channel in connected)
            await asyncio.sleep(LOOK_SECONDS if is_needed else IDLE_SECONDS)

    async def _look(self, name: str) -> None:
        channel = as_sign_in(self._channel(name))
        if channel is None:
            return
        now, readiness = time.time(), channel.readiness()
        is_out = channel.sign_in_state().is_signed_out
        if is_out and now - readiness.since >= GRACE_SECONDS and self._said.get(name) is not True:
            await self._store.run(partial(self._tell, name=name, now=now))
            self._said[name] = True
        elif readiness.health is Health.READY and self._said.get(name) is not False:
            await self._store.run(partial(self._note_sign_in, name=name))
            self._said[name] = False

    def _tell(self, execute: Execute, name: str, now: float) -> None:
        kept = KEPT.format(channel=name)
        if TOLD in channels.read_state(execute, kept):
            return
        channels.write_state(execute, kept, {TOLD: sealer_of(self._current.config).seal(f"{now}", CHANNEL)})
        audit.record(execute, AuditEvent(AuditKind.CHANNEL_SIGN_IN, what={"channel": name}, result="ended"))
        how = ON_PAGE if self._current.config.http.listen else AT_TERMINAL
        tell_operators(
            *(execute, self._current, f"sign-in:{name}:{now:.0f}"),
            *(lambda: _(SIGNED_OUT, channel=name, how=_(how, channel=name)), now),
            is_unheard=lambda row, _place: row.channel == name,  # but it may reach a device of theirs
        )

    def _note_sign_in(self, execute: Execute, name: str) -> None:
        kept = KEPT.format(channel=name)
        if TOLD in channels.read_state(execute, kept):
            channels.write_state(execute, kept, {TOLD: None})
            audit.record(execute, AuditEvent(AuditKind.CHANNEL_SIGN_IN, what={"channel": name}, result="signed_in"))
