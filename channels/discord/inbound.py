"""Persist gateway events in order; read missed messages first.

Discord keeps nothing for us and asks for no acknowledgement: an event that cannot be stored is kept here, and offered
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from agent.messages import Kind, Message, Thread, Unreadable
from channels.base import CatchUpSource, ChannelError, NotStored, Receipt, Receive, TryLater
from channels.discord import events
from channels.discord.api import DiscordApi
from channels.discord.guild_cache import DIRECT_WORKSPACE, NAME, GuildCache
from channels.discord.history import missed_messages
from channels.discord.interactions import Interactions
from channels.discord.second_instance import SecondInstance
from channels.discord.threads import DiscordThreads
from channels.shared.texts import NOT_STORED

log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 10.0  # seconds between two tries while nothing can be stored

Frame = dict[str, Any]  # the shape is Discord's
Event = Message | Unreadable


class Inbound:
    """Takes the gateway's frames to the inbox."""

    def __init__(
        self,
        calls: DiscordApi,
        places: GuildCache,
        rooms: DiscordThreads,
        interactions: Interactions,
        second: SecondInstance,
        opens: bool,
    ) -> None:
        self._calls = calls
        self._places = places
        self._rooms = rooms
        self._interactions = interactions
        self._second = second
        self._me = events.DiscordAccount("", opens=opens)
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._awaited: set[str] = set()  # servers of a fresh session whose history is still to be read
        self._gates: dict[str, list[Event]] = {}  # server → what came while its history is read
        self._again: set[str] = set()  # …of which a part was lost meanwhile: it is read once more
        self._told: set[Thread] = set()  # who knows that messages cannot be stored
        self._receive: Receive  # these three are there while it runs
        self._past: CatchUpSource
        self._side: asyncio.TaskGroup

    def receive_frame(self, frame: Frame) -> None:
        """One dispatched event, in order."""
        self._frames.put_nowait(frame)

    def set_commands(self, names: frozenset[str]) -> None:
        """The words that a "!" makes a command."""
        self._me = replace(self._me, commands=names)

    async def run(self, receive: Receive, past: CatchUpSource) -> None:
        """Until cancelled. Faults of `receive` are raised."""
        self._receive, self._past = receive, past
        async with asyncio.TaskGroup() as side:
            self._side = side
            side.create_task(self._store_in_order(), name="discord feed")
            while True:
                for event in await self._read_frame(await self._frames.get()):
                    self._events.put_nowait(event)

    async def _store_in_order(self) -> None:
        """Store what was read. While that does not work, buttons and commands must not wait behind it."""
        while True:
            batch = [await self._events.get()]
            while not self._events.empty():
                batch.append(self._events.get_nowait())
            await self._offer_batch(batch)

    # ------------------------------------------------------------ reading

    async def _read_frame(self, frame: Frame) -> list[Event]:
        kind, data = str(frame["t"]), frame["d"]
        try:
            return await self._parse_frame(kind, data)
        except Exception as error:  # the boundary of one event: its shape is not ours, others must go on
            if kind not in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE"):
                log.warning("discord.unreadable event=%s", kind, exc_info=error)
                return []
            return [_make_unreadable(kind, data, error)]

    async def _parse_frame(self, kind: str, data: Frame) -> list[Event]:
        if kind == "READY":
            self._session_began(data)
            return []
        self._places.update(kind, data, self._me.id)
        if kind == "GUILD_DELETE" and data.get("unavailable"):
            self._awaited.add(data["id"])  # its events are lost until it is back
        if kind == "GUILD_CREATE" and data["id"] in self._awaited:
            self._awaited.discard(data["id"])
            self._catch_up(data["id"])
        if kind not in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE", "MESSAGE_REACTION_ADD") and (
            not kind.startswith("MESSAGE_DELETE")
        ):
            return []
        thread = await self._places.resolve_thread(data["channel_id"], data.get("guild_id"))
        made: list[Event] = []
        match kind:
            case "MESSAGE_CREATE":
                made += self._parse_messages([data], thread)
            case "MESSAGE_UPDATE":
                edit = events.parse_edit(data, thread, self._account_in(thread))
                if edit and events.author_of(data).id != self._me.id:
                    made.append(edit)
            case "MESSAGE_REACTION_ADD" if stop := events.parse_reaction(data, thread, self._me, time.time()):
                made.append(stop)
            case "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK":
                made += events.parse_delete(data, thread, time.time())
            case "INTERACTION_CREATE":
                self._handle_interaction(data, thread)
        gate = self._gates.get(thread.workspace)
        if gate is None:
            return made
        gate += made
        return []

    def _session_began(self, data: Frame) -> None:
        """A fresh session: whatever happened before it is only in the history."""
        self._me = replace(self._me, id=data["user"]["id"])
        self._rooms.account = self._me.id
        self._awaited = {guild["id"] for guild in data["guilds"]}
        self._catch_up(DIRECT_WORKSPACE)
        log.info("discord.connected bot=%s servers=%d", data["user"]["username"], len(self._awaited))

    def _account_in(self, thread: Thread) -> events.DiscordAccount:
        guild = self._places.guilds.get(thread.workspace)
        return replace(self._me, role=guild.role) if guild and guild.role else self._me

    def _parse_messages(self, found: Sequence[Frame], thread: Thread) -> list[Event]:
        """What of these may matter to the inbox."""
        made: list[Event] = []
        for each in found:
            try:
                said = events.parse_message(each, thread, self._account_in(thread))
            except Exception as error:  # noqa: BLE001 — the boundary of one message: others must go on
                made.append(_make_unreadable("MESSAGE_CREATE", each, error))
            else:
                if said and (said.addressed or said.follow_up or said.kind is Kind.COMMAND):
                    made.append(said)
        return made

    def _handle_interaction(self, data: Frame, thread: Thread) -> None:
        made = None
        if data["type"] == 2:
            made = events.parse_command(data, thread)
        elif data["type"] == 3:
            made = events.parse_click(data, thread, self._me)
        if made:
            self._run_in_background(self._interactions.handle(data, made, self._receive), f"interaction {data['id']}")

    # ------------------------------------------------------------ storing

    async def _offer_batch(self, batch: Sequence[Event], *, live: bool = True) -> None:
        """Store, and only then go on. What cannot be stored is offered again. `live`: it was said just now."""
        if not batch or self._second.detected:
            return
        for event in batch:
            if live and isinstance(event, Message) and event.kind is Kind.CHAT and event.thread.topic == event.id:
                self._rooms.expect_thread(event.id, event.text)
        tries = 0
        while True:
            try:
                receipts = await self._receive(batch)
                break
            except NotStored as error:
                log.error("discord.not_stored events=%d reason=%s", len(batch), error)  # noqa: TRY400 — the reason is enough
                tries += 1
                self._apologize(batch)
                await asyncio.sleep(min(MAX_BACKOFF_SECONDS, 0.25 * 2.0 ** min(tries, 6)))
        self._told.clear()
        for event, receipt in zip(batch, receipts, strict=True):
            if isinstance(event, Unreadable):
                log.error("discord.unreadable key=%s reason=%s", event.key, event.error)
            elif event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
                self._run_in_background(self._rooms.show_typing(event.thread), f"typing {event.thread}")

    def _apologize(self, batch: Sequence[Event]) -> None:
        """Say once per outage and chat that a message could not be stored."""
        affected = [e for e in batch if isinstance(e, Message) and e.addressed and e.kind in (Kind.CHAT, Kind.COMMAND)]
        for event in affected:
            room = event.thread.topic if event.thread.topic in self._places.spots else event.thread.chat
            where = replace(event.thread, topic=room)
            if where not in self._told:
                self._told.add(where)
                self._run_in_background(self._post_apology(room, event.id), f"not stored {where}")

    async def _post_apology(self, room: str, to: str) -> None:
        reference = {"message_id": to, "fail_if_not_exists": False}
        body = {"content": NOT_STORED, "message_reference": reference, "allowed_mentions": {"parse": []}}
        await self._calls("POST", f"/channels/{room}/messages", body)

    # ------------------------------------------------------------ catching up

    def _catch_up(self, workspace: str) -> None:
        if workspace in self._gates:
            self._again.add(workspace)
        elif self._past.hours:
            self._gates[workspace] = []
            self._side.create_task(self._read_history(workspace), name=f"discord history {workspace}")

    async def _read_history(self, workspace: str) -> None:
        """Offer what was missed, then what came meanwhile."""
        guild = "" if workspace == DIRECT_WORKSPACE else workspace
        again = True
        while again:
            try:
                gap = await self._past.open_gap(NAME, workspace)
                read = missed_messages(self._calls, self._places, self._past, workspace, gap.heard)
                async for channel, found in read:
                    log.info("discord.catch_up channel=%s messages=%d", channel, len(found))
                    await self._offer_batch(
                        self._parse_messages(found, await self._places.resolve_thread(channel, guild)), live=False
                    )
                await self._past.close_gap(gap)
            except (TryLater, NotStored) as error:  # the next catch-up begins where this one did
                log.warning("discord.not_caught_up workspace=%s reason=%s", workspace, error)
            again = workspace in self._again
            self._again.discard(workspace)
        while came := self._gates[workspace]:
            self._gates[workspace] = []
            await self._offer_batch(came)
        del self._gates[workspace]

    def _run_in_background(self, call: Awaitable[object], name: str) -> None:
        """Make a call that nothing depends on."""

        async def quietly() -> None:
            try:
                await call
            except ChannelError as error:
                log.debug("discord.sign task=%s reason=%s", name, error)

        self._side.create_task(quietly(), name=f"discord {name}")


def _make_unreadable(kind: str, data: Frame, error: Exception) -> Unreadable:
    key = f"{NAME}:unreadable:{kind}:{data.get('id')}"
    return Unreadable(NAME, key, orjson.dumps(data), f"{type(error).__name__}: {error}")
