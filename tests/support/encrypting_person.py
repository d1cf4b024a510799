"""A person whose rooms are encrypted, on Fawn's own machine, beside the strict client on Element's library."""

from __future__ import annotations

from urllib.parse import quote

from channels.matrix.crypto import Machine, NotDecrypted
from tests.support.synapse import C, Json, Person

ENCRYPTION = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


class EncryptingPerson(Person):
    """Encrypts messages, and opens those of others."""

    def __init__(self, url: str, account: Json) -> None:
        super().__init__(url, account)
        self._machine = Machine(self.id, self.device, {})
        body = {"device_keys": self._machine.device_keys(), "one_time_keys": self._machine.one_time_keys(50)}
        self.call("POST", f"{C}/keys/upload", body)
        self._machine.published()

    def send(self, room: str, content: Json, kind: str = "m.room.message", transaction: str = "") -> str:
        if kind != "m.room.message":
            return super().send(room, content, kind, transaction)
        members = self.call("GET", f"{C}/rooms/{quote(room)}/joined_members")["joined"]
        found = self.call("POST", f"{C}/keys/query", {"device_keys": {user: [] for user in members}})
        for user in members:
            self._machine.note_devices(user, found)
        devices = [each for user in members for each in self._machine.devices[user].values() if each.trusted]
        devices = [each for each in devices if each.id != self.device]
        key = self._machine.outbound(room, devices)
        missing = [each for each in devices if f"{each.user} {each.id}" not in key.shared]
        for device in missing:
            if not self._machine.has_session(device):
                wanted = {"one_time_keys": {device.user: {device.id: "signed_curve25519"}}}
                given = self.call("POST", f"{C}/keys/claim", wanted)["one_time_keys"][device.user][device.id]
                assert self._machine.begin_session(device, next(iter(given.values())))
            sealed = self._machine.seal_for(device, "m.room_key", self._machine.room_key(room, key))
            path = f"{C}/sendToDevice/m.room.encrypted/{id(sealed)}{device.id}{key.session.message_index}"
            self.call("PUT", path, {"messages": {device.user: {device.id: sealed}}})
        key.shared |= {f"{each.user} {each.id}" for each in missing}
        return super().send(room, self._machine.seal_event(room, key, kind, content), "m.room.encrypted", transaction)

    def take_keys(self, answer: Json) -> None:
        for event in answer.get("to_device", {}).get("events", ()):
            payload, curve = self._machine.open_from_device(event)
            self._machine.take_room_key(payload, curve)

    def opened(self, room: str, event: Json) -> Json:
        redacted = "redacted_because" in event.get("unsigned", {})  # the server has emptied it
        if event["type"] != "m.room.encrypted" or event["sender"] == self.id or redacted:
            return event
        try:
            return self._machine.open_event(room, event)
        except NotDecrypted as error:
            raise AssertionError(f"{self.id} cannot read {event}") from error
