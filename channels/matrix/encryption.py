"""Encrypt what is posted into encrypted rooms, and keep the keys of the bot's device in order with the server.

The bot's device is signed by the bot's own identity: clients refuse keys to devices that nobody signed, and messages
from them (docs/decisions/0152-encryption-on-vodozemac.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import quote

import orjson

from catalogue import N_, _
from channels.base import ChannelError, NotStored, Refused, StateStore, TokenRejected, TryLater
from channels.matrix.api import CLIENT, Json, MatrixApi, new_id
from channels.matrix.crypto import Device, Machine, NotDecrypted, OutboundKey
from channels.matrix.events import server_of
from channels.shared.visible_text import dict_of, dicts_in, text_of

log = logging.getLogger(__name__)

ONE_TIME_KEYS, LEAST_ONE_TIME_KEYS = 50, 25
MAX_USERS = 100  # of one query of keys
MAX_UNPROVED = 200  # keys of rooms of which nobody says yet whose devices sent them…
UNPROVED_SECONDS = 86_400.0  # …for so long
UNPROVED = "unproved "  # begins the name under which they are kept
MAX_MEMBERS = 2_000  # of an encrypted room into which the bot posts
PATIENCE_SECONDS = 600.0  # for a homeserver that does not say which devices its people have
SILENT = N_("The homeserver of {people} does not say which devices they have, so that they could not read it.")
TOO_MANY = N_("The encrypted room has more than {n} members: nothing is posted there.")
OTHER_KEYS = "the server knows other keys of this device: run `fawn setup matrix` again, for a new one"


class RoomEncryption:
    """The encryption of one device."""

    patience_seconds = PATIENCE_SECONDS

    def __init__(self, api: MatrixApi, machine: Machine, state: StateStore) -> None:
        self._api = api
        self.machine = machine
        self._state = state
        self._lock = asyncio.Lock()  # one at a time shares keys
        self._members: dict[str, list[str]] = {}  # of each room, until they change
        self._silent_since: dict[str, float] = {}  # room → time.monotonic() of the first look at somebody silent
        self._unproved = {name: _load_key(text) for name, text in machine.kept_under(UNPROVED).items()}
        self._unsaid: set[str] = set()  # people whose devices nobody said in this answer of /sync
        self.is_signed = False

    async def start(self) -> None:
        """Publish the keys of the device, and sign it. Raises ChannelError."""
        await self.save()
        if self.machine.is_new:
            await self._upload(ONE_TIME_KEYS)
        found = await self._query([self.machine.user])
        own = dict_of(dict_of(found.get("device_keys")).get(self.machine.user)).get(self.machine.device)
        mine = self.machine.device_keys()
        if dict_of(own).get("keys") not in (None, mine["keys"]):
            raise Refused(OTHER_KEYS)
        if own is None:
            await self._upload(ONE_TIME_KEYS)
        await self._sign_device(found, dict_of(own) or mine)

    async def save(self, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """Save what has changed, and `more`, in one transaction. Raises TryLater where it cannot be stored."""
        changes = dict(self.machine.changes)
        if not changes and not more:
            return
        try:
            await self._state.save({**changes, **more})
        except NotStored as error:  # nothing is sent whose keys are not kept
            raise TryLater(str(error)) from error
        for name, value in changes.items():
            if self.machine.changes.get(name, "") == value:
                del self.machine.changes[name]

    async def _upload(self, count: int) -> None:
        """Upload the keys of the device and its one-time keys, kept before."""
        keys = self.machine.one_time_keys(count)
        await self.save()
        body = {"device_keys": self.machine.device_keys(), "one_time_keys": keys}
        await self._api.call("POST", f"{CLIENT}/keys/upload", body, repeatable=True)
        self.machine.published()
        await self.save()

    async def _sign_device(self, found: Json, device: Json) -> None:
        """Sign the device with the account's identity, which is made and published if there is none yet."""
        objects, keys = self.machine.cross_signing()
        await self.save()
        known = dict_of(dict_of(found.get("master_keys")).get(self.machine.user))
        if known.get("keys") != objects["master_key"]["keys"]:
            try:
                await self._api.call("POST", f"{CLIENT}/keys/device_signing/upload", objects, repeatable=True)
            except ChannelError as error:  # the account has an identity of another client, whose keys are not here
                log.warning("matrix.not_signed reason=%s", error)
                return
        signer = next(iter(objects["self_signing_key"]["keys"]))
        if signer not in dict_of(dict_of(device.get("signatures")).get(self.machine.user)):
            signed = self.machine.signed_by(keys["self_signing"], {**device, "unsigned": {}})
            del signed["unsigned"]
            body = {self.machine.user: {self.machine.device: signed}}
            answer = await self._api.call("POST", f"{CLIENT}/keys/signatures/upload", body, repeatable=True)
            if answer.get("failures"):
                log.warning("matrix.not_signed reason=%s", answer["failures"])
                return
        self.is_signed = True

    # ------------------------------------------------------------ what comes

    async def take_sync(self, answer: Json) -> None:
        """Take over keys and lists of devices from an answer of /sync, before its events are read."""
        lists = dict_of(answer.get("device_lists"))
        for user in [*(lists.get("changed") or ()), *(lists.get("left") or ())]:
            self.machine.devices.pop(str(user), None)
        self._unsaid.clear()
        for event in dicts_in(dict_of(answer.get("to_device")).get("events")):
            if event.get("type") == "m.room.encrypted":
                await self._take_from_device(event)
        for name, (payload, curve, since) in list(self._unproved.items()):
            if time.time() - since > UNPROVED_SECONDS or await self._take_key(payload, curve):
                del self._unproved[name]
                self.machine.keep(f"{UNPROVED}{name}", None)
        counts = dict_of(answer.get("device_one_time_keys_count"))
        count = counts.get("signed_curve25519", 0)
        if "device_one_time_keys_count" in answer and isinstance(count, int) and count < LEAST_ONE_TIME_KEYS:
            await self._upload(ONE_TIME_KEYS - count)

    async def _take_from_device(self, event: Json) -> None:
        """Take the key of a room. The server sends it once: what nobody can prove yet is kept."""
        try:
            payload, curve = self.machine.open_from_device(event)
            if payload.get("type") != "m.room_key" or await self._take_key(payload, curve):
                return
        except (NotDecrypted, ValueError) as error:
            log.warning("matrix.key_refused sender=%s reason=%s", event.get("sender"), error)
            return
        if len(self._unproved) >= MAX_UNPROVED:
            log.warning("matrix.key_refused sender=%s reason=%s", event.get("sender"), "too many are not proved yet")
            return
        content = dict_of(payload.get("content"))
        name = f"{text_of(content.get('room_id'))} {text_of(content.get('session_id'))}"
        self._unproved[name] = payload, curve, time.time()
        self.machine.keep(f"{UNPROVED}{name}", orjson.dumps(self._unproved[name]).decode())

    async def _take_key(self, payload: Json, curve: str) -> bool:
        """Take the key of a room, or refuse it. Returns False while nobody says whose device has sent it."""
        user, claimed = text_of(payload.get("sender")), text_of(dict_of(payload.get("keys")).get("ed25519"))
        try:
            trusted = await self._is_trusted(user, curve, claimed)
            if trusted is None:
                return False
            if not trusted:
                raise NotDecrypted("its device is unknown, or not signed by its owner")
            self.machine.take_room_key(payload, curve)
        except (NotDecrypted, ValueError) as error:
            log.warning("matrix.key_refused sender=%s reason=%s", user, error)
        return True

    def may_come(self, room: str, event: Json) -> bool:
        """Return whether the key of an event is here, and only nobody says yet whose it is."""
        return f"{room} {text_of(dict_of(event.get('content')).get('session_id'))}" in self._unproved

    async def _is_trusted(self, user: str, curve: str, claimed: str) -> bool | None:
        """Return whether a person has a device with these keys, asked for anew if it is not a known one.

        None where nobody says their devices.
        """
        for _look in range(2):
            try:
                if user in self._unsaid or await self.know([user]):
                    self._unsaid.add(user)
                    return None
            except TokenRejected:
                raise
            except ChannelError as error:
                log.info("matrix.devices_unknown user=%s reason=%s", user, error)
                self._unsaid.add(user)
                return None
            devices = [each for each in self.machine.devices.get(user, {}).values() if each.curve25519 == curve]
            if devices:
                return any(each.ed25519 == claimed and each.trusted for each in devices)
            self.machine.devices.pop(user, None)
        return False

    def note_members(self, room: str) -> None:
        """Note that other people may be in a room now."""
        self._members.pop(room, None)

    # ------------------------------------------------------------ what goes

    async def _share_key(self, room: str) -> OutboundKey:
        """Give those who are in a room its key, and return it. Raises ChannelError."""
        devices = await self._devices_in(room)
        key = self.machine.outbound(room, devices)
        missing = [each for each in devices if f"{each.user} {each.id}" not in key.shared]
        if missing:
            await self._share(room, key, missing)
        return key

    async def prepare(self, room: str) -> None:
        """Do before a post what takes its time."""
        async with self._lock:
            await self._share_key(room)

    async def encrypt(self, room: str, kind: str, content: Json) -> Json:
        """Return the content of an encrypted event, after those who are in the room have its key."""
        async with self._lock:
            key = await self._share_key(room)
            sealed = self.machine.seal_event(room, key, kind, content)
            await self.save()
            return sealed

    async def _devices_in(self, room: str) -> list[Device]:
        if room not in self._members:
            path = f"{CLIENT}/rooms/{quote(room, safe='')}/members"
            found = await self._api.in_room(room, self._api.call("GET", path, not_membership="leave"))
            here = [each for each in dicts_in(found.get("chunk")) if _is_member(each)]
            if len(here) > MAX_MEMBERS:
                raise Refused(_(TOO_MANY, n=MAX_MEMBERS))
            self._members[room] = [text_of(each.get("state_key")) for each in here]
        users = self._members[room]
        silent: set[str] = set()
        while any(user not in self.machine.devices for user in users if user not in silent):
            silent = await self.know(users)  # lists change while others are asked for
        own = (self.machine.user, self.machine.device)
        known = (each for user in users for each in self.machine.devices.get(user, {}).values())
        devices = [each for each in known if each.trusted and (each.user, each.id) != own]
        self._wait_for(room, silent, is_read=any(each.user != self.machine.user for each in devices))
        return devices

    def _wait_for(self, room: str, silent: set[str], *, is_read: bool) -> None:
        """Raise TryLater while a homeserver may still say its people's devices, and where nobody else reads the post.

        Each later post asks again, so that they read on from there.
        """
        if not silent:
            self._silent_since.pop(room, None)
            return
        since = self._silent_since.setdefault(room, time.monotonic())
        if not is_read or time.monotonic() - since < self.patience_seconds:
            raise TryLater(_(SILENT, people=", ".join(sorted(silent)[:5])), 2.0)
        log.warning("matrix.devices_unknown room=%s people=%d", room, len(silent))

    async def know(self, users: Iterable[str]) -> set[str]:
        """Learn the devices of people whose list is not up to date. Returns those whose homeserver does not say them.

        Whom an answer leaves out because of that is not taken for somebody without devices.
        """
        unknown = [user for user in dict.fromkeys(users) if user not in self.machine.devices]
        silent: set[str] = set()
        for at in range(0, len(unknown), MAX_USERS):
            some = unknown[at : at + MAX_USERS]
            found = await self._query(some)
            failed, said = dict_of(found.get("failures")), dict_of(found.get("device_keys"))
            silent |= {user for user in some if server_of(user) in failed and user not in said}
            for user in some:
                if user not in silent:
                    self.machine.note_devices(user, found)
        return silent

    async def _query(self, users: list[str]) -> Json:
        body: Json = {"device_keys": {user: [] for user in users}}
        return await self._api.call("POST", f"{CLIENT}/keys/query", body, repeatable=True)

    async def _share(self, room: str, key: OutboundKey, devices: list[Device]) -> None:
        """Send the key of a room to devices. Their sessions are kept before; a crash shares it again."""
        await self._begin_sessions([each for each in devices if not self.machine.has_session(each)])
        messages: dict[str, dict[str, Json]] = {}
        reached = [each for each in devices if self.machine.has_session(each)]
        for device in reached:
            sealed = self.machine.seal_for(device, "m.room_key", self.machine.room_key(room, key))
            messages.setdefault(device.user, {})[device.id] = sealed
        await self.save()
        if messages:
            path = f"{CLIENT}/sendToDevice/m.room.encrypted/{new_id()}"
            await self._api.call("PUT", path, {"messages": messages}, repeatable=True)
        key.shared |= {f"{each.user} {each.id}" for each in reached}

    async def _begin_sessions(self, devices: list[Device]) -> None:
        if not devices:
            return
        wanted: dict[str, dict[str, str]] = {}
        for device in devices:
            wanted.setdefault(device.user, {})[device.id] = "signed_curve25519"
        body = {"one_time_keys": wanted, "timeout": 5000}
        found = await self._api.call("POST", f"{CLIENT}/keys/claim", body, repeatable=True)
        for device in devices:
            given = dict_of(dict_of(dict_of(found.get("one_time_keys")).get(device.user)).get(device.id))
            key = dict_of(next(iter(given.values()), {}))
            if key and not self.machine.begin_session(device, key):
                log.warning("matrix.device_refused user=%s device=%s reason=%s", device.user, device.id, "forged key")


def _load_key(text: str) -> tuple[Json, str, float]:
    payload, curve, since = orjson.loads(text)
    return payload, curve, since


def _is_member(event: Json) -> bool:
    return dict_of(event.get("content")).get("membership") in ("join", "invite")
