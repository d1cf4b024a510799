"""Encrypted rooms of Matrix: against a real homeserver, with a client that refuses devices that nobody signed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from agent.blocks import Final, Text
from agent.messages import Kind, Thread
from channels.base import OutgoingFile, TryLater
from channels.matrix.channel import MatrixChannel
from channels.matrix.crypto import KeyMissing, Machine, NotDecrypted
from channels.matrix.encryption import RoomEncryption
from tests.fakes.server import Fault
from tests.support.rigs.matrix import EncryptedMatrixRig, MatrixRig
from tests.support.rigs.registry import Memory, deliver, ready, until
from tests.support.strict_person import StrictPerson
from tests.support.synapse import shared_synapse

pytestmark = pytest.mark.slow
Json = dict[str, Any]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MatrixRig]:
    async with MatrixRig.start(tmp_path) as made:
        await ready(made)
        yield made


@pytest.fixture
async def person(rig: MatrixRig) -> AsyncIterator[StrictPerson]:
    account = shared_synapse().register(f"strict{secrets.token_hex(4)}")
    async with StrictPerson.start(shared_synapse(), account, rig.bot) as made:
        yield made


async def asked(rig: MatrixRig, person: StrictPerson, text: str) -> Thread:
    """The person writes, and the bot reads it."""
    person.write(text)
    await until(lambda: any(message.text == text for message in rig.box.messages), what=text)
    return next(message.thread for message in rig.box.messages if message.text == text)


def encryption_of(rig: MatrixRig) -> RoomEncryption:
    assert isinstance(rig.channel, MatrixChannel)
    encryption = rig.channel._sender.encryption
    assert encryption
    return encryption


def channel_of(rig: MatrixRig) -> MatrixChannel:
    assert isinstance(rig.channel, MatrixChannel)
    return rig.channel


def silence(rig: MatrixRig, person: str, contains: str) -> Fault:
    """Have /keys/query name the homeserver of a person as one that failed, and leave its people out."""
    server = person.partition(":")[2]
    body = orjson.dumps({"device_keys": {}, "failures": {server: {"status": 503}}}).decode()
    return rig.proxy.fault("error", "other", contains=contains, code=200, body=body, times=-1)


async def test_a_client_that_refuses_unsigned_devices_reads_and_is_read(rig: MatrixRig, person: StrictPerson) -> None:
    thread = await asked(rig, person, "for signed devices only")
    assert thread.chat == person.room
    reply = rig.channel.reply(thread, Memory())
    reply.show(Text("Half"))
    await until(lambda: any(each["body"] == "Half" for each in person.reads), what="the stream")
    await reply.finish(Final("The **whole** answer."))
    await until(lambda: "m.new_content" in person.reads[-1], what="the edit")
    assert person.reads[-1]["m.new_content"]["body"] == "The **whole** answer."
    assert person.refused == []


async def test_a_restart_keeps_the_keys(rig: MatrixRig, person: StrictPerson) -> None:
    await asked(rig, person, "before")
    await rig.leave()
    person.write("while you were away")
    await rig.back()
    await until(lambda: rig.box.messages[-1].text == "while you were away", what="it")
    thread = await asked(rig, person, "after")
    await rig.channel.reply(thread, Memory()).finish(Final("I am back."))
    await until(lambda: any(each["body"] == "I am back." for each in person.reads), what="the answer")
    assert person.refused == []
    kinds = [message.kind for message in rig.box.messages]
    assert kinds == [Kind.INVITE, Kind.CHAT, Kind.CHAT, Kind.CHAT]


async def test_an_answer_just_after_a_start_waits_for_the_keys_and_is_never_open(tmp_path: Path) -> None:
    async with EncryptedMatrixRig.start(tmp_path) as rig:
        await ready(rig)
        await rig.leave()
        rig.proxy.fault("slow", "other", contains="device_keys", seconds=2.0)  # the rooms are known before the keys
        await rig.back()
        await rig.channel.reply(rig.thread(), Memory("early")).finish(Final("At once."))
        await rig.leave()
        rig.proxy.fault("slow", "other", contains="device_keys", seconds=2.0)
        await rig.back()
        await until(lambda: rig.proxy.calls_of("sync")[-1:], what="the rooms")
        await rig.channel.reply(rig.thread(), Memory("later")).finish(Final("With the rooms."))
        assert rig.visible() == ["At once.", "With the rooms."]
        said = [each for each in rig.jane.events[rig.direct] if each["type"] == "m.room.message"]
        assert all(each["decrypted"] for each in said)


async def test_nobody_is_left_out_whose_devices_change_while_those_of_others_are_asked_for(tmp_path: Path) -> None:
    async with EncryptedMatrixRig.start(tmp_path) as rig:
        await ready(rig)
        await rig.channel.reply(rig.thread(1), Memory("before")).finish(Final("Before."))
        encryption = encryption_of(rig)
        await encryption.know([rig.jane.id])
        encryption.machine.devices.pop(rig.kim.id, None)
        asking = rig.proxy.fault("slow", "other", contains="device_keys", seconds=3.0)
        reply = rig.channel.reply(rig.thread(1), Memory("after"))
        answering = asyncio.create_task(reply.finish(Final("After.")))
        await until(lambda: not asking.times, what="the question for Kim's devices")
        await encryption.take_sync({"device_lists": {"changed": [rig.jane.id]}})
        await answering
        assert rig.visible(1) == ["Before.", "After."]


async def test_an_answer_waits_for_a_homeserver_that_does_not_say_its_devices(tmp_path: Path) -> None:
    """An answer of /keys/query names the servers that failed, and leaves their people out."""
    async with EncryptedMatrixRig.start(tmp_path) as rig:
        await ready(rig)
        encryption = encryption_of(rig)
        pins = encryption.machine.kept(f"pin {rig.jane.id}")
        encryption.machine.devices.clear()
        failing = silence(rig, rig.jane.id, "device_keys")
        encryption.patience_seconds = 0.0  # nobody else would read it
        with pytest.raises(TryLater, match="does not say"):
            await rig.channel.reply(rig.thread(), Memory()).finish(Final("Who reads this?"))
        assert encryption.machine.kept(f"pin {rig.jane.id}") == pins
        assert rig.visible() == []
        rig.proxy.faults.remove(failing)
        await deliver(rig, Final("You do."), Memory())
        assert rig.visible() == ["You do."]


async def test_a_room_does_not_wait_for_ever_for_one_homeserver(tmp_path: Path) -> None:
    async with EncryptedMatrixRig.start(tmp_path) as rig:
        await ready(rig)
        await rig.channel.reply(rig.thread(1), Memory("before")).finish(Final("Before."))
        encryption = encryption_of(rig)
        del encryption.machine.devices[rig.kim.id]
        silence(rig, rig.kim.id, rig.kim.id)
        with pytest.raises(TryLater):
            await rig.channel.reply(rig.thread(1), Memory("after")).finish(Final("After."))
        encryption.patience_seconds = 0.0
        await deliver(rig, Final("After."), Memory("after"), 1)
        assert rig.visible(1) == ["Before.", "After."]


async def unproved(rig: MatrixRig, person: StrictPerson, text: str) -> None:
    """The person writes, and the key comes, but nobody says whose device sent it."""
    person.write(text)
    await until(lambda: any(" unproved " in name for name in rig.box.kept), what="the key")
    await until(lambda: any(" late " in name for name in rig.box.kept), what="the message")


async def test_a_key_from_a_homeserver_that_is_silent_opens_its_message_later(
    rig: MatrixRig, person: StrictPerson
) -> None:
    """The server sends a key once. It waits over a restart, too, and longer than a message waits for a key."""
    channel_of(rig)._syncing.late_seconds = 0.5
    failing = silence(rig, person.id, person.id)
    await unproved(rig, person, "who am I?")
    await rig.leave()
    await rig.back()
    await ready(rig)
    await until(lambda: encryption_of(rig)._unsaid, what="another question")
    assert [message for message in rig.box.messages if message.kind is not Kind.INVITE] == []
    rig.proxy.faults.remove(failing)
    await until(lambda: rig.box.messages[-1].text == "who am I?", what="the message")
    await until(lambda: not any(" unproved " in name for name in rig.box.kept), what="the end of waiting")


async def test_a_key_whose_devices_the_own_server_fails_to_say_is_not_lost(
    rig: MatrixRig, person: StrictPerson
) -> None:
    failing = rig.proxy.fault("error", "other", contains=person.id, code=504, times=-1)
    await unproved(rig, person, "and now?")
    rig.proxy.faults.remove(failing)
    await until(lambda: rig.box.messages[-1].text == "and now?", what="the message")


async def test_files_are_encrypted_both_ways(rig: MatrixRig, person: StrictPerson, tmp_path: Path) -> None:
    key, iv, data = os.urandom(32), os.urandom(8) + bytes(8), os.urandom(200_000)
    sealed = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor().update(data)
    address = rig.jane.upload(sealed)
    digest = base64.b64encode(hashlib.sha256(sealed).digest()).rstrip(b"=").decode()
    file = {
        "url": address, "v": "v2", "iv": base64.b64encode(iv).rstrip(b"=").decode(), "hashes": {"sha256": digest},
        "key": {"kty": "oct", "alg": "A256CTR", "ext": True, "key_ops": ["encrypt", "decrypt"],
                "k": base64.urlsafe_b64encode(key).rstrip(b"=").decode()},
    }  # fmt: skip
    person.send({"msgtype": "m.file", "body": "数字.bin", "file": file, "info": {"size": len(data)}})
    message = await rig.box.next(kind=Kind.CHAT)
    [attachment] = message.attachments
    assert attachment.name == "数字.bin"
    assert b"".join([chunk async for chunk in rig.channel.fetch(attachment)]) == data
    path = tmp_path / "out"
    path.write_bytes(data)
    await rig.channel.send_files(message.thread, [OutgoingFile(path, "报告.csv", len(data))], Memory())
    await until(lambda: person.reads, what="the file")
    sent = person.reads[-1]
    assert (sent["filename"], "url" in sent) == ("报告.csv", False)
    server, media = sent["file"]["url"].removeprefix("mxc://").split("/")
    raw = rig.jane.download(f"/_matrix/client/v1/media/download/{server}/{media}")
    assert raw != data
    assert base64.b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode() == sent["file"]["hashes"]["sha256"]
    k, i = base64.urlsafe_b64decode(sent["file"]["key"]["k"] + "="), base64.b64decode(sent["file"]["iv"] + "==")
    assert Cipher(algorithms.AES(k), modes.CTR(i)).decryptor().update(raw) == data


async def test_a_message_without_its_key_is_answered_with_words(rig: MatrixRig, person: StrictPerson) -> None:
    await asked(rig, person, "hello")
    unknown = {"algorithm": "m.megolm.v1.aes-sha2", "session_id": "unknown", "ciphertext": "AwgAEg"}
    person.plainly.send(person.room, unknown, "m.room.encrypted")
    message = await rig.box.next(kind=Kind.UNSUPPORTED)
    assert message.text.startswith("this encrypted message")
    assert message.addressed


# ---------------------------------------------------------------- the machine alone


def machines() -> tuple[Machine, Machine, Json]:
    """Two devices with a session between them, and a message in the room !r."""
    jane, bot = Machine("@jane:x", "J", {}), Machine("@bot:x", "B", {})
    for one, other in ((jane, bot), (bot, jane)):
        one.note_devices(other.user, {"device_keys": {other.user: {other.device: other.device_keys()}}})
    [key] = list(bot.one_time_keys(1).values())
    [device] = jane.devices[bot.user].values()
    assert jane.begin_session(device, key)
    outbound = jane.outbound("!r", [device])
    sealed = jane.seal_for(device, "m.room_key", jane.room_key("!r", outbound))
    payload, curve = bot.open_from_device({"sender": "@jane:x", "content": sealed})
    bot.take_room_key(payload, curve)
    content = jane.seal_event("!r", outbound, "m.room.message", {"msgtype": "m.text", "body": "secret"})
    return jane, bot, {"type": "m.room.encrypted", "event_id": "$1", "sender": "@jane:x", "content": content}


def test_a_message_is_opened_once_also_after_a_restart() -> None:
    _jane, bot, event = machines()
    assert bot.open_event("!r", event)["content"]["body"] == "secret"
    assert bot.open_event("!r", event)["content"]["body"] == "secret", "the same event again is no repeat"
    again = Machine("@bot:x", "B", {name: each for name, each in bot.changes.items() if each is not None})
    for machine in (bot, again):
        with pytest.raises(NotDecrypted, match="repeats"):
            machine.open_event("!r", {**event, "event_id": "$2"})


def test_a_message_of_another_sender_or_room_is_refused() -> None:
    _jane, bot, event = machines()
    with pytest.raises(NotDecrypted, match="sender"):
        bot.open_event("!r", {**event, "sender": "@mallory:x"})
    with pytest.raises(KeyMissing):
        bot.open_event("!other", event)


def test_a_key_for_somebody_else_is_refused() -> None:
    jane, bot, _event = machines()
    [device] = jane.devices[bot.user].values()
    sealed = jane.seal_for(device, "m.room_key", {})
    with pytest.raises(NotDecrypted):
        bot.open_from_device({"sender": "@mallory:x", "content": sealed})
    with pytest.raises(NotDecrypted):
        bot.open_from_device({"sender": "@jane:x", "content": {**sealed, "sender_key": "AAAA"}})
    sealed = jane.seal_for(device, "m.room_key", {})
    assert bot.open_from_device({"sender": "@jane:x", "content": sealed})
    with pytest.raises(NotDecrypted):
        bot.open_from_device({"sender": "@jane:x", "content": sealed})


def test_devices_count_only_with_their_signatures() -> None:
    jane, bot = Machine("@jane:x", "J", {}), Machine("@bot:x", "B", {})
    objects, keys = jane.cross_signing()
    plain = jane.device_keys()
    signed = jane.signed_by(keys["self_signing"], plain)
    forged = {**plain, "keys": bot.device_keys()["keys"]}
    identity = {
        "master_keys": {"@jane:x": objects["master_key"]},
        "self_signing_keys": {"@jane:x": objects["self_signing_key"]},
    }

    def trusted(device: Json, more: Json) -> list[bool]:
        watcher = Machine("@watcher:x", "W", {})
        watcher.note_devices("@jane:x", {"device_keys": {"@jane:x": {"J": device}}, **more})
        return [each.trusted for each in watcher.devices["@jane:x"].values()]

    assert trusted(plain, {}) == [True], "a person without identity"
    assert trusted(signed, identity) == [True]
    assert trusted(plain, identity) == [False], "the server added it"
    assert trusted(forged, {}) == []
    other = Machine("@jane:x", "K", {}).cross_signing()[0]
    mixed = {**identity, "self_signing_keys": {"@jane:x": other["self_signing_key"]}}
    assert trusted(signed, mixed) == [False], "an identity that does not sign itself"


def test_a_device_whose_keys_change_is_refused() -> None:
    first, second, bot = Machine("@jane:x", "J", {}), Machine("@jane:x", "J", {}), Machine("@bot:x", "B", {})
    for machine, known in ((first, 1), (second, 0)):
        bot.note_devices("@jane:x", {"device_keys": {"@jane:x": {"J": machine.device_keys()}}})
        assert len(bot.devices["@jane:x"]) == known


def test_a_new_key_is_made_when_somebody_has_left() -> None:
    jane, bot, _event = machines()
    [device] = jane.devices[bot.user].values()
    key = jane.outbound("!r", [device])
    key.shared.add(f"{device.user} {device.id}")
    assert jane.outbound("!r", [device]) is key
    assert jane.outbound("!r", []) is not key


def test_no_shape_of_an_encrypted_event_raises_anything_else() -> None:
    _jane, bot, event = machines()
    odd: list[Any] = [None, 1, [], "x", {}, "AwgAEg", "\ud800"]
    for field in ("algorithm", "session_id", "ciphertext", "sender_key", "m.relates_to"):
        for value in odd:
            content = {**event["content"], field: value}
            for read, where in ((partial(bot.open_event, "!r"), event), (bot.open_from_device, {"sender": "@jane:x"})):
                with suppress(NotDecrypted):
                    read({**where, "content": content})
    body = {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": "x"}
    for part in odd:
        with pytest.raises(NotDecrypted):
            bot.open_from_device({"sender": "@j:x", "content": {**body, "ciphertext": {bot.curve25519: part}}})
    assert orjson.dumps(bot.device_keys())
