"""Keys and sessions of end-to-end encryption: what is kept of them, and what messages they open and seal.

The primitives are those of vodozemac (spec.matrix.org/latest/client-server-api/#end-to-end-encryption). Nothing here
makes calls: `encryption` does, and saves `changes` before anybody sees what depends on them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import vodozemac
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from channels.matrix.files import from_base64, to_base64
from channels.shared.visible_text import dict_of, text_of

log = logging.getLogger(__name__)

OLM, MEGOLM = "m.olm.v1.curve25519-aes-sha2", "m.megolm.v1.aes-sha2"
PICKLE_KEY = bytes(32)  # the store seals what is kept
MAX_SESSIONS = 5  # of one other device
MAX_SEEN = 2_000  # messages of one key whose repeat is recognised
ROTATE_MESSAGES, ROTATE_SECONDS = 100, 7 * 86400.0  # …/#mroomencryption
CROSS_KEYS = ("master", "self_signing", "user_signing")

Json = dict[str, Any]


class NotDecrypted(Exception):
    """An encrypted event cannot be read: its key is missing, or it is not what it claims to be."""


class KeyMissing(NotDecrypted):
    """The key did not arrive yet."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a person, whose keys are signed by itself. `trusted`: also by its owner, if they have an identity."""

    user: str
    id: str
    ed25519: str
    curve25519: str
    trusted: bool


@dataclass(slots=True)
class OutboundKey:
    """The key of the messages to a room, and who has it."""

    session: vodozemac.GroupSession
    made: float
    shared: set[str] = field(default_factory=set)  # "user device"

    @property
    def is_old(self) -> bool:
        return self.session.message_index >= ROTATE_MESSAGES or time.time() - self.made > ROTATE_SECONDS


def canonical(value: Json) -> bytes:
    """Return the canonical JSON of what a signature covers."""
    plain = {key: each for key, each in value.items() if key not in ("signatures", "unsigned")}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def is_signed(value: Json, user: str, key_id: str, key: str) -> bool:
    """Return whether an object has this key's signature."""
    signature = text_of(dict_of(dict_of(value.get("signatures")).get(user)).get(f"ed25519:{key_id}"))
    try:
        public = vodozemac.Ed25519PublicKey.from_base64(key)
        public.verify_signature(canonical(value), vodozemac.Ed25519Signature.from_base64(signature))
    except ValueError:
        return False
    return True


class Machine:
    """The keys of one device. `changes` are what is to be saved of it."""

    def __init__(self, user: str, device: str, kept: Mapping[str, str]) -> None:
        self.user, self.device = user, device
        self._prefix = f"key {user} {device} "
        self._kept = {
            name.removeprefix(self._prefix): each for name, each in kept.items() if name.startswith(self._prefix)
        }
        self.is_new = "account" not in self._kept
        self.changes: dict[str, str | None] = {}
        self.account = (
            vodozemac.Account() if self.is_new else vodozemac.Account.from_pickle(self._kept["account"], PICKLE_KEY)
        )
        self.devices: dict[str, dict[str, Device]] = {}  # of each person whose list is up to date
        self._outbound: dict[str, OutboundKey] = {}
        if self.is_new:
            self.note_account()

    # ------------------------------------------------------------ what is kept

    def keep(self, name: str, value: str | None) -> None:
        """Note a change that is to be saved."""
        if value is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = value
        self.changes[self._prefix + name] = value

    def kept(self, name: str) -> str:
        """Return what is kept under a name, "" for nothing."""
        return self._kept.get(name, "")

    def kept_under(self, begin: str) -> dict[str, str]:
        """Return what is kept under names that begin so, by the rest of the name."""
        return {name[len(begin) :]: each for name, each in self._kept.items() if name.startswith(begin)}

    def note_account(self) -> None:
        self.keep("account", self.account.pickle(PICKLE_KEY))

    # ------------------------------------------------------------ own keys

    @property
    def curve25519(self) -> str:
        return self.account.curve25519_key.to_base64()

    @property
    def ed25519(self) -> str:
        return self.account.ed25519_key.to_base64()

    def signed(self, value: Json) -> Json:
        """Return an object with this device's signature."""
        signature = self.account.sign(canonical(value)).to_base64()
        return {**value, "signatures": {self.user: {f"ed25519:{self.device}": signature}}}

    def device_keys(self) -> Json:
        """Return the public keys of this device, signed."""
        keys = {f"curve25519:{self.device}": self.curve25519, f"ed25519:{self.device}": self.ed25519}
        return self.signed({"user_id": self.user, "device_id": self.device, "algorithms": [OLM, MEGOLM], "keys": keys})

    def one_time_keys(self, count: int) -> Json:
        """Return so many new keys, signed; they are kept until `published`."""
        self.account.generate_one_time_keys(max(0, count - len(self.account.one_time_keys)))
        self.note_account()
        return {
            f"signed_curve25519:{id}": self.signed({"key": key.to_base64()})
            for id, key in self.account.one_time_keys.items()
        }

    def published(self) -> None:
        """Note that the server has the one-time keys."""
        self.account.mark_keys_as_published()
        self.note_account()

    def cross_signing(self) -> tuple[Json, dict[str, Ed25519PrivateKey]]:
        """Return the public keys of the account's identity for the server, and the private ones; made once."""
        if not self.kept("identity"):
            seeds = {name: to_base64(Ed25519PrivateKey.generate().private_bytes_raw()) for name in CROSS_KEYS}
            self.keep("identity", orjson.dumps(seeds).decode())
        seeds = orjson.loads(self.kept("identity"))
        keys = {name: Ed25519PrivateKey.from_private_bytes(from_base64(seeds[name])) for name in CROSS_KEYS}
        objects: Json = {}
        for name, key in keys.items():
            public = to_base64(key.public_key().public_bytes_raw())
            made = {"user_id": self.user, "usage": [name], "keys": {f"ed25519:{public}": public}}
            objects[f"{name}_key"] = made if name == "master" else self.signed_by(keys["master"], made)
        return objects, keys

    def signed_by(self, key: Ed25519PrivateKey, value: Json) -> Json:
        """Return an object with one more signature, of a key of the account's identity."""
        id = to_base64(key.public_key().public_bytes_raw())
        known = dict_of(dict_of(value.get("signatures")).get(self.user))
        signature = to_base64(key.sign(canonical(value)))
        return {**value, "signatures": {self.user: {**known, f"ed25519:{id}": signature}}}

    # ------------------------------------------------------------ devices of people

    def note_devices(self, user: str, answer: Json) -> None:
        """Take over the devices of a person from an answer of /keys/query, as far as their signatures hold.

        Where a person has an identity, only devices that it signed are trusted: the server could add others.
        """
        found: dict[str, Device] = {}
        signer = self._signer_of(user, answer)
        pinned: Json = orjson.loads(self.kept(f"pin {user}") or b"{}")
        for id, raw in dict_of(dict_of(answer.get("device_keys")).get(user)).items():
            keys = dict_of(dict_of(raw).get("keys"))
            ed, curve = text_of(keys.get(f"ed25519:{id}")), text_of(keys.get(f"curve25519:{id}"))
            if (raw.get("user_id"), raw.get("device_id")) != (user, id) or not is_signed(raw, user, id, ed):
                log.warning("matrix.device_refused user=%s device=%s reason=%s", user, id, "its signature is wrong")
                continue
            if pinned.get(id, [ed, curve]) != [ed, curve]:
                log.warning("matrix.device_refused user=%s device=%s reason=%s", user, id, "its keys have changed")
                continue
            trusted = signer is None or (signer != "" and is_signed(raw, user, signer, signer))
            found[id] = Device(user, id, ed, curve, trusted)
        self.devices[user] = found
        pins = {id: [each.ed25519, each.curve25519] for id, each in found.items()}
        if pins != pinned:
            self.keep(f"pin {user}", orjson.dumps(pins).decode())

    def _signer_of(self, user: str, answer: Json) -> str | None:
        """Return the key with which a person signs devices, None for a person without identity, "" for a wrong one."""
        master = dict_of(dict_of(answer.get("master_keys")).get(user))
        own = dict_of(dict_of(answer.get("self_signing_keys")).get(user))
        if not master:
            return None
        [root, key] = (next(map(str, dict_of(each.get("keys")).values()), "") for each in (master, own))
        usage = own.get("usage") == ["self_signing"] and own.get("user_id") == user
        return key if usage and is_signed(own, user, root, root) else ""

    # ------------------------------------------------------------ between two devices

    def has_session(self, device: Device) -> bool:
        return bool(self.kept(f"olm {device.curve25519}"))

    def begin_session(self, device: Device, one_time_key: Json) -> bool:
        """Make a session with a device from a key that it published. Returns False for a forged one."""
        if not is_signed(one_time_key, device.user, device.id, device.ed25519):
            return False
        identity = vodozemac.Curve25519PublicKey.from_base64(device.curve25519)
        key = vodozemac.Curve25519PublicKey.from_base64(text_of(one_time_key.get("key")))
        self._keep_session(device.curve25519, self.account.create_outbound_session(identity, key))
        return True

    def _sessions(self, curve: str) -> list[vodozemac.Session]:
        pickles = orjson.loads(self.kept(f"olm {curve}") or b"[]")
        return [vodozemac.Session.from_pickle(each, PICKLE_KEY) for each in pickles]

    def _keep_session(self, curve: str, used: vodozemac.Session) -> None:
        """Keep a session, the one used last first."""
        others = [each for each in self._sessions(curve) if each.session_id != used.session_id]
        pickles = [each.pickle(PICKLE_KEY) for each in [used, *others][:MAX_SESSIONS]]
        self.keep(f"olm {curve}", orjson.dumps(pickles).decode())

    def seal_for(self, device: Device, kind: str, content: Json) -> Json:
        """Return the content of a message to a device with which there is a session."""
        payload = {
            "type": kind,
            "content": content,
            "sender": self.user,
            "sender_device": self.device,
            "keys": {"ed25519": self.ed25519},
            "recipient": device.user,
            "recipient_keys": {"ed25519": device.ed25519},
        }
        session = self._sessions(device.curve25519)[0]
        form, sealed = session.encrypt(orjson.dumps(payload)).to_parts()
        self._keep_session(device.curve25519, session)
        ciphertext = {device.curve25519: {"type": form, "body": to_base64(sealed)}}
        return {"algorithm": OLM, "sender_key": self.curve25519, "ciphertext": ciphertext}

    def open_from_device(self, event: Json) -> tuple[Json, str]:
        """Return what another device sent, and the device's curve25519 key. Raises NotDecrypted and KeyMissing."""
        content = dict_of(event.get("content"))
        part = dict_of(dict_of(content.get("ciphertext")).get(self.curve25519))
        curve = text_of(content.get("sender_key"))
        if content.get("algorithm") != OLM or not part or not curve:
            raise NotDecrypted("it is not for this device")
        try:
            message = vodozemac.AnyOlmMessage.from_parts(part["type"], from_base64(part.get("body")))
            payload = dict_of(orjson.loads(self._open(curve, message)))
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            raise NotDecrypted(f"{type(error).__name__}: {error}") from None
        mine = dict_of(payload.get("recipient_keys")).get("ed25519") == self.ed25519
        if payload.get("sender") != event.get("sender") or payload.get("recipient") != self.user or not mine:
            raise NotDecrypted("it was made for somebody else")
        return payload, curve

    def _open(self, curve: str, message: vodozemac.AnyOlmMessage) -> bytes:
        begins = message.to_pre_key()
        for session in self._sessions(curve):
            if begins is not None and not session.session_matches(begins):
                continue
            try:
                plain = session.decrypt(message)
            except ValueError:
                continue
            self._keep_session(curve, session)
            return plain
        if begins is None:
            raise NotDecrypted("there is no session with its device")
        identity = vodozemac.Curve25519PublicKey.from_base64(curve)
        made, plain = self.account.create_inbound_session(identity, begins)
        self.note_account()  # its one-time key is used
        self._keep_session(curve, made)
        return plain

    # ------------------------------------------------------------ rooms

    def take_room_key(self, payload: Json, curve: str) -> None:
        """Keep the key of a room that another device sent. An earlier or better one stays."""
        content = dict_of(payload.get("content"))
        room, id = text_of(content.get("room_id")), text_of(content.get("session_id"))
        if content.get("algorithm") != MEGOLM or not room:
            return
        session = vodozemac.InboundGroupSession(vodozemac.SessionKey(text_of(content.get("session_key"))))
        if session.session_id == id and not self.kept(f"in {room} {id}"):
            self._keep_inbound(room, session, str(payload["sender"]), curve, {})

    def _keep_inbound(
        self, room: str, session: vodozemac.InboundGroupSession, user: str, curve: str, seen: Mapping[str, str]
    ) -> None:
        latest = dict([*seen.items()][-MAX_SEEN:])
        value = {"pickle": session.pickle(PICKLE_KEY), "user": user, "curve": curve, "seen": latest}
        self.keep(f"in {room} {session.session_id}", orjson.dumps(value).decode())

    def has_key(self, room: str, event: Json) -> bool:
        """Return whether the key of an event is here."""
        return bool(self.kept(f"in {room} {text_of(dict_of(event.get('content')).get('session_id'))}"))

    def open_event(self, room: str, event: Json) -> Json:
        """Return an event of a room as it was before its encryption. Raises NotDecrypted and KeyMissing.

        Its sender is the person whose device sent the key, and each message of a key counts once.
        """
        content = dict_of(event.get("content"))
        id = text_of(content.get("session_id"))
        kept = self.kept(f"in {room} {id}")
        if content.get("algorithm") != MEGOLM or not kept:
            raise KeyMissing("its key is not here")
        known = orjson.loads(kept)
        session = vodozemac.InboundGroupSession.from_pickle(known["pickle"], PICKLE_KEY)
        try:
            opened = session.decrypt(vodozemac.MegolmMessage.from_base64(text_of(content.get("ciphertext"))))
            plain = dict_of(orjson.loads(opened.plaintext))
        except (ValueError, TypeError) as error:
            raise NotDecrypted(f"{type(error).__name__}: {error}") from None
        if known["user"] != event.get("sender") or plain.get("room_id") != room:
            raise NotDecrypted("it is not of its sender, or of another room")
        mark = hashlib.blake2b(text_of(event.get("event_id")).encode(), digest_size=9).hexdigest()
        index = str(opened.message_index)
        if known["seen"].get(index, mark) != mark:
            raise NotDecrypted("it repeats an earlier event")
        if index not in known["seen"]:
            self._keep_inbound(room, session, known["user"], known["curve"], {**known["seen"], index: mark})
        inner = dict_of(plain.get("content"))
        if "m.relates_to" in content and "m.relates_to" not in inner:  # relations are not encrypted
            inner["m.relates_to"] = content["m.relates_to"]
        return {**event, "type": text_of(plain.get("type")), "content": inner, "decrypted": True}

    def outbound(self, room: str, wanted: Iterable[Device]) -> OutboundKey:
        """Return the key of messages to a room: a new one when it is old, or when somebody who has it has left."""
        key = self._outbound.get(room) or self._load_outbound(room)
        names = {f"{each.user} {each.id}" for each in wanted}
        if key is None or key.is_old or key.shared - names:
            key = OutboundKey(vodozemac.GroupSession(), time.time())
            session = vodozemac.InboundGroupSession(key.session.session_key)
            self._keep_inbound(room, session, self.user, self.curve25519, {})
        self._outbound[room] = key
        self.note_outbound(room, key)
        return key

    def _load_outbound(self, room: str) -> OutboundKey | None:
        if not self.kept(f"out {room}"):
            return None
        kept = orjson.loads(self.kept(f"out {room}"))
        session = vodozemac.GroupSession.from_pickle(kept["pickle"], PICKLE_KEY)
        return OutboundKey(session, kept["made"], set(kept["shared"]))

    def note_outbound(self, room: str, key: OutboundKey) -> None:
        value = {"pickle": key.session.pickle(PICKLE_KEY), "made": key.made, "shared": sorted(key.shared)}
        self.keep(f"out {room}", orjson.dumps(value).decode())

    def seal_event(self, room: str, key: OutboundKey, kind: str, content: Json) -> Json:
        """Return the content of an encrypted event. Its relation stays readable for the server."""
        plain = orjson.dumps({"type": kind, "content": content, "room_id": room})
        sealed: Json = {
            "algorithm": MEGOLM,
            "ciphertext": key.session.encrypt(plain).to_base64(),
            "session_id": key.session.session_id,
            "sender_key": self.curve25519,
            "device_id": self.device,
        }
        self.note_outbound(room, key)
        if relation := content.get("m.relates_to"):
            sealed["m.relates_to"] = relation
        return sealed

    def room_key(self, room: str, key: OutboundKey) -> Json:
        """Return what a device needs to read the messages from now on."""
        return {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": key.session.session_id,
            "session_key": key.session.session_key.to_base64(),
        }
