"""Receive events by /sync: store them, then the position after them; report health."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from agent.backoff import backoff_seconds
from agent.messages import Kind, Message, Origin
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    Health,
    NotStored,
    Receipt,
    Refused,
    StateStore,
    TokenRejected,
)
from channels.matrix import NAME
from channels.matrix.api import CLIENT, Json, MatrixApi, new_id
from channels.matrix.crypto import KeyMissing, Machine, NotDecrypted
from channels.matrix.encryption import RoomEncryption
from channels.matrix.events import MatrixAccount, answer_click, needs_lookup, read_event, time_of
from channels.matrix.rooms import Known, Room
from channels.matrix.sender import EventSender
from channels.shared.background import BackgroundTasks
from channels.shared.event_connection import ConnectionHealth
from channels.shared.http_client import RateLimited
from channels.shared.inbound import Event, InboundPipeline
from channels.shared.visible_text import dict_of, dicts_in, text_of

log = logging.getLogger(__name__)

POLL_GRACE_SECONDS = 15.0  # how late an answer may be before the connection counts as lost
MAX_BACKOFF_SECONDS = 10.0
MAX_TOKEN_BACKOFF_SECONDS = 30.0
MAX_LOOKUPS = 20  # of events, for one answer of /sync
PAGE_SIZE = 100
MAX_PAGES = 100
MAX_INVITES = 100  # that are answered of one answer of /sync
JOIN_TRIES = 6
MAX_LATE = 200  # encrypted events that wait for their keys
LATE = "late"
SINCE = "since"
REJECTED = "Matrix rejects the bot's access token. Run `fawn setup matrix` again."
_TYPES = [
    "m.room.message", "m.room.encrypted", "m.reaction", "m.room.redaction", "m.sticker", "m.poll.start",
    "org.matrix.msc3381.poll.start", "m.room.member", "m.room.encryption", "m.room.tombstone",
    "m.room.create",
]  # fmt: skip
_STATE = ["m.room.member", "m.room.encryption", "m.room.create"]
_NOTHING: Json = {"types": []}


def _filter(limit: int, types: Sequence[str], mark: str = "") -> str:
    """Return a filter of /sync. With another `mark`, Synapse does not repeat an answer of the last two minutes."""
    room = {
        "not_rooms": [f"!{mark}:localhost"] if mark else [],
        "timeline": {"limit": limit, "types": [*types], "lazy_load_members": True},
        "state": {"types": _STATE, "lazy_load_members": True},
        "ephemeral": _NOTHING,
        "account_data": _NOTHING,
    }
    return orjson.dumps({"room": room, "presence": _NOTHING, "account_data": _NOTHING}).decode()


class Syncing:
    """Receives the events of one account."""

    def __init__(
        self,
        api: MatrixApi,
        sender: EventSender,
        background: BackgroundTasks,
        pipeline: InboundPipeline,
        *,
        poll_seconds: float,
        late_seconds: float,
    ) -> None:
        self._api = api
        self._sender = sender
        self._rooms = sender.rooms
        self._background = background
        self._pipeline = pipeline
        self._poll_seconds = poll_seconds
        self._me: MatrixAccount | None = None
        self._since = ""
        self._last_poll = 0.0
        self._lookups = 0
        self._late: dict[str, tuple[str, Json, float]] = {}  # encrypted events whose key may come: room, event, since
        self.late_seconds = late_seconds
        self.state: StateStore
        self.past: CatchUpSource = NO_CATCH_UP
        self.health = ConnectionHealth(NAME, log)

    async def run(self) -> None:
        """Receive until cancelled. Retries what the platform fails at."""
        while True:
            try:
                me = self._me or await self._identify()
                await self._sync(me)
            except ChannelError as error:
                await asyncio.sleep(self._note_failure(error))
            except NotStored as error:  # the position stays where it was: the same events come again
                log.warning("matrix.position_not_stored reason=%s", error)
                await asyncio.sleep(self._note_failure(ChannelError(str(error))))

    # ------------------------------------------------------------ the account

    async def _identify(self) -> MatrixAccount:
        """Ask who the bot is and which rooms it is in. A first start reads no history."""
        who = await self._api.call("GET", f"{CLIENT}/account/whoami")
        id, device = text_of(who.get("user_id")), text_of(who.get("device_id"))
        profile = await self._api.ask(f"{CLIENT}/profile/{quote(id, safe='')}")
        me = MatrixAccount(id, text_of(profile.get("displayname")))
        self._sender.account = id
        kept = await self.state.load()
        now = await self._api.call("GET", f"{CLIENT}/sync", filter=_filter(1, (), new_id()), repeatable=True)
        self._rooms.joined.clear()
        for room, changed in _rooms_in(now, "join"):
            self._rooms.apply(room, changed)
        self._name = f"{SINCE} {id} {device}"
        self._since = kept.get(self._name, "")
        if device:
            await self._begin_encryption(id, device, kept)
        self._sender.synced.set()
        if not self._since:
            await self._keep_position(text_of(now.get("next_batch")))
        await self._answer_invites(now, me)
        self._me = me
        log.info("matrix.connected bot=%s rooms=%d", id, len(self._rooms.joined))
        return me

    async def _begin_encryption(self, id: str, device: str, kept: Mapping[str, str]) -> None:
        """Open the keys of this device, or make some. What cannot be used is said, and encrypted rooms are refused."""
        encryption = RoomEncryption(self._api, Machine(id, device, kept), self.state)
        try:
            await encryption.start()
        except Refused as error:
            log.error("matrix.not_encrypting reason=%s", error)  # noqa: TRY400 — the reason is enough
        else:
            self._sender.encryption = encryption
            late = encryption.machine.kept_under(f"{LATE} ")
            self._late = {name: (room, event, since) for name, (room, event, since) in map(_load_late, late.items())}

    async def _keep_position(self, position: str) -> None:
        """Store the position together with the keys that came before it: the server deletes them then."""
        if self._sender.encryption:
            await self._sender.encryption.save({self._name: position})
        else:
            await self.state.save({self._name: position})
        self._since = position

    # ------------------------------------------------------------ events

    async def _sync(self, me: MatrixAccount) -> None:
        waits = self.health.is_ready and not self.health.failures
        wait = min(self._poll_seconds, self.late_seconds if self._late else math.inf) if waits else 0.0
        answer = await self._api.call(
            "GET",
            f"{CLIENT}/sync",
            seconds=wait + POLL_GRACE_SECONDS,
            since=self._since,
            timeout=str(int(wait * 1000)),
            filter=_filter(50, _TYPES),
        )
        self._last_poll = time.monotonic()
        self.health.set_health(Health.READY, me.id)
        self.health.failures = 0
        self._lookups = 0
        if self._sender.encryption:
            await self._sender.encryption.take_sync(answer)
            await self._read_late(me)
        for room, changed in _rooms_in(answer, "join"):
            await self._store_room(room, changed, me)
        for room, _changed in _rooms_in(answer, "leave"):
            self._rooms.forget(room)
        await self._answer_invites(answer, me)
        await self._keep_position(text_of(answer.get("next_batch")))

    async def _store_room(self, room: str, changed: Mapping[str, Any], me: MatrixAccount) -> None:
        """Store the events of a room, with those before them that the answer left out."""
        timeline = dict_of(changed.get("timeline"))
        events = [dict(each) for each in dicts_in(timeline.get("events"))]
        if room not in self._rooms.joined:
            state = [*dicts_in(dict_of(changed.get("state")).get("events")), *events]
            created = [each for each in state if each.get("type") == "m.room.create"]
            if created:
                await self._move_chat(room, created[0], me)
                events = _since_invite(events, me.id)
            else:
                await self._learn(room)
        elif timeline.get("limited") is True and self.past.hours:
            events = await self._read_gap(room, text_of(timeline.get("prev_batch"))) + events
        self._rooms.apply(room, changed)
        if self._sender.encryption and any(each.get("type") == "m.room.member" for each in events):
            self._sender.encryption.note_members(room)
        for event in events:
            if event.get("type") == "m.room.tombstone" and "state_key" in event:
                self._background.start_best_effort(self._follow_upgrade(room, event), f"matrix upgrade {room}")
        found = [message for event in events if (message := await self._read(event, room, me))]
        for at in range(0, len(found), PAGE_SIZE):
            await self._pipeline.store_with_retries(found[at : at + PAGE_SIZE])

    async def _read(self, event: Json, room: str, me: MatrixAccount) -> Event | None:
        """Read an event, after what decides about it was looked up."""
        target = needs_lookup(event)
        if target and target not in self._rooms.events and event.get("sender") != me.id:
            await self._look_up(room, target)
        if event.get("type") == "m.room.encrypted" and event.get("sender") != me.id and self._sender.encryption:
            try:
                event = self._sender.encryption.machine.open_event(room, event)
            except KeyMissing:
                if self._wait_for_key(room, event):
                    return None
            except NotDecrypted as error:
                log.warning("matrix.not_decrypted room=%s event=%s reason=%s", room, event.get("event_id"), error)
        message = read_event(event, room, self._rooms, me)
        if isinstance(message, Message) and message.kind is Kind.CLICK:
            return await self._find_question(message)
        return message

    def _wait_for_key(self, room: str, event: Json) -> bool:
        """Let an event wait for its key, also over a restart. Returns False for one that waited, or of too many."""
        id = text_of(event.get("event_id"))
        if not id or id in self._late or len(self._late) >= MAX_LATE or not self._sender.encryption:
            return False
        self._late[id] = room, event, time.time()
        self._sender.encryption.machine.keep(f"{LATE} {id}", orjson.dumps(self._late[id]).decode())
        return True

    async def _read_late(self, me: MatrixAccount) -> None:
        """Read the events whose key has come, and those that have waited long enough."""
        assert self._sender.encryption  # noqa: S101 — the caller's condition
        encryption, machine = self._sender.encryption, self._sender.encryption.machine
        for id, (room, event, since) in list(self._late.items()):
            patience = encryption.patience_seconds if encryption.may_come(room, event) else self.late_seconds
            if not machine.has_key(room, event) and time.time() - since < patience:
                continue
            if found := await self._read(event, room, me):
                await self._pipeline.store_with_retries([found])
            del self._late[id]
            machine.keep(f"{LATE} {id}", None)

    async def _look_up(self, room: str, target: str) -> None:
        """Learn who sent an event of before."""
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            return
        try:
            found = await self._api.fetch_event(room, target)
        except Refused:
            return
        relation = dict_of(dict_of(found.get("content")).get("m.relates_to"))
        topic = text_of(relation.get("event_id")) if relation.get("rel_type") == "m.thread" else ""
        direct = self._rooms.room(room).is_direct
        self._rooms.events[target] = Known(
            text_of(found.get("sender")), topic or ("" if direct else target), sent=time_of(found)
        )

    async def _find_question(self, click: Message) -> Message | None:
        try:
            content = await self._sender.fetch_content(click.thread.chat, click.id)
        except Refused:
            return None
        return answer_click(click, content or {})

    async def _read_gap(self, room: str, begin: str) -> list[Json]:
        """Return the events that came after the last position and before `begin`, oldest first."""
        oldest = time.time() - 3600 * self.past.hours
        found: list[Json] = []
        path = f"{CLIENT}/rooms/{quote(room, safe='')}/messages"
        types = orjson.dumps({"types": _TYPES}).decode()
        for _page in range(MAX_PAGES):
            query = {"from": begin, "to": self._since}
            page = await self._api.call("GET", path, query=query, dir="b", limit=str(PAGE_SIZE), filter=types)
            events = [dict(each) for each in dicts_in(page.get("chunk"))]
            found += [each for each in events if time_of(each) >= oldest]
            begin = text_of(page.get("end"))
            if not begin or len(found) >= self.past.most or (events and time_of(events[-1]) < oldest):
                break
        log.info("matrix.gap room=%s events=%d", room, len(found))
        return found[: self.past.most][::-1]

    # ------------------------------------------------------------ rooms

    async def _answer_invites(self, answer: Json, me: MatrixAccount) -> None:
        """Enter the rooms into which people invite the bot who may, and decline the others."""
        for room, changed in list(_rooms_in(answer, "invite"))[:MAX_INVITES]:
            stripped = [*dicts_in(dict_of(changed.get("invite_state")).get("events"))]
            own = next((each for each in stripped if each.get("state_key") == me.id), {})
            inviter = text_of(own.get("sender"))
            direct = dict_of(own.get("content")).get("is_direct") is True
            if not inviter or inviter == me.id:
                continue
            author = me.author(inviter, self._rooms.joined.get(room) or Room())
            event = Message(
                me.thread(room), me.key(room, f"invite:{inviter}"), "", author, "", time.time(), Kind.INVITE,
                private=direct, origin=Origin.PERSON,
            )  # fmt: skip
            [receipt] = await self._pipeline.store_with_retries([event])
            deed = "join" if receipt is Receipt.ACCEPTED else "leave"
            log.info("matrix.invited room=%s by=%s answer=%s", room, inviter, deed)
            path = f"{CLIENT}/rooms/{quote(room, safe='')}/{deed}"
            self._background.start_best_effort(self._enter(path, room), f"matrix {deed} {room}")

    async def _enter(self, path: str, room: str) -> None:
        """Enter a room, or leave it, by a call that is repeated for some minutes."""
        for attempt in range(1, JOIN_TRIES + 1):
            try:
                await self._api.call("POST", path, {}, repeatable=True)
            except Refused as error:
                log.warning("matrix.not_entered room=%s reason=%s", room, error)
                return
            except ChannelError as error:  # the room's server may be slow
                await asyncio.sleep(max(error.after, backoff_seconds(attempt, 60.0)))
            else:
                return

    async def _follow_upgrade(self, old: str, event: Json) -> None:
        """Enter the room that replaces one, if it is open to its members. Else somebody invites the bot."""
        new, sender = text_of(dict_of(event.get("content")).get("replacement_room")), text_of(event.get("sender"))
        if new.startswith("!") and new != old:
            server = sender.partition(":")[2]
            path = f"{CLIENT}/join/{quote(new, safe='')}?server_name={quote(server, safe='')}"
            await self._enter(path, new)

    async def _learn(self, id: str) -> None:
        """Ask about a room of which the server says only what is new."""
        path = f"{CLIENT}/rooms/{quote(id, safe='')}"
        members = dict_of((await self._api.ask(f"{path}/joined_members")).get("joined"))
        encryption = await self._api.ask(f"{path}/state/m.room.encryption/")
        room = self._rooms.join(id)
        room.joined, room.encrypted = len(members), room.encrypted or bool(encryption)

    async def _move_chat(self, new: str, created: Json, me: MatrixAccount) -> None:
        """Move a chat into a room that the bot has just entered, if the old room names it as the new one, too."""
        old = text_of(dict_of(dict_of(created.get("content")).get("predecessor")).get("room_id"))
        if old not in self._rooms.joined:
            return
        stone = await self._api.ask(f"{CLIENT}/rooms/{quote(old, safe='')}/state/m.room.tombstone/")
        if stone.get("replacement_room") != new:
            log.warning("matrix.not_moved room=%s reason=%s", new, "the old room does not name it")
            return
        author = me.author(text_of(created.get("sender")), self._rooms.room(old))
        moved = Message(
            me.thread(old), me.key(old, f"moved:{new}"), "", author, new, time.time(), Kind.MOVED,
            addressed=False, origin=Origin.PERSON,
        )  # fmt: skip
        await self._pipeline.store_with_retries([moved])

    # ------------------------------------------------------------ failures

    def _note_failure(self, error: ChannelError) -> float:
        match error:
            case TokenRejected():
                self._me = None
                return self.health.note_failure(REJECTED, MAX_TOKEN_BACKOFF_SECONDS)
            case RateLimited():
                self.health.failures += 1
                return error.after
        overdue = time.monotonic() - self._last_poll > self._poll_seconds + POLL_GRACE_SECONDS
        is_short = self.health.is_ready and not self.health.failures and not overdue  # one short failure is normal
        return self.health.note_failure("" if is_short else f"{error}.", MAX_BACKOFF_SECONDS)


def _load_late(kept: tuple[str, str]) -> tuple[str, tuple[str, Json, float]]:
    name, value = kept
    room, event, since = orjson.loads(value)
    return name, (room, event, since)


def _rooms_in(answer: Json, kind: str) -> list[tuple[str, dict[str, Any]]]:
    found = dict_of(dict_of(answer.get("rooms")).get(kind))
    return [(room, dict_of(changed)) for room, changed in found.items()]


def _since_invite(events: list[Json], me: str) -> list[Json]:
    """Return what was said in a room since the bot was invited: people write before it has entered."""
    own = [at for at, each in enumerate(events) if (each.get("type"), each.get("state_key")) == ("m.room.member", me)]
    return events[own[0] :] if own else []
