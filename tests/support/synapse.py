"""Run a real homeserver (Synapse) on loopback, one for all processes of a run, and speak to it as a person.

A test has accounts and rooms of its own there. It is installed into .venv/synapse from requirements-synapse.lock
(`make dev`), because it has its own dependencies.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from tests.support.ports import free_port
from tests.support.run_folder import await_owner, run_folder, shared, start_for_run

ROOT = Path(__file__).parents[2]
SITE = ROOT / ".venv" / "synapse"
START_SECONDS = 120.0
C = "/_matrix/client/v3"
PASSWORD = "correct horse"  # of accounts on loopback

Json = dict[str, Any]


class MatrixError(Exception):
    """The server refused a call."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


class Synapse:
    """One server with its own folder. `limits`: with the rate limits of a fresh installation."""

    def __init__(self, folder: Path, *, limits: bool = False) -> None:
        self.folder = folder
        self.secret = secrets.token_hex(16)
        self.port = 0
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, with what it stored before. Raises RuntimeError with its log."""
        if not self.port:
            self.port = free_port()
            self._write_configuration()
        self._process = self._run()
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                call(self.url, "GET", "/_matrix/client/versions")
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
            else:
                return self
        raise RuntimeError("Synapse did not start: " + (self.folder / "hs.out").read_text("utf-8", "replace")[-2000:])

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _run(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "synapse.app.homeserver", "-c", str(self.folder / "hs.yaml")]
        environment = {**os.environ, "PYTHONPATH": str(SITE)}
        environment.pop("LD_PRELOAD", None)  # a stepped clock is the service's: by its own, a server limits for an hour
        with (self.folder / "hs.out").open("ab") as out:
            return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def _write_configuration(self) -> None:
        plenty = "{per_second: 10000, burst_count: 10000}"
        limits = {
            "rc_message": plenty,
            "rc_login": f"{{address: {plenty}, account: {plenty}, failed_attempts: {plenty}}}",
            "rc_joins": f"{{local: {plenty}, remote: {plenty}}}",
            "rc_joins_per_room": plenty,
            "rc_invites": f"{{per_room: {plenty}, per_user: {plenty}, per_issuer: {plenty}}}",
            "rc_room_creation": plenty,
        }
        lines = [] if self._limits else [f"{name}: {value}" for name, value in limits.items()]
        handler = json.dumps({"class": "logging.FileHandler", "filename": str(self.folder / "hs.log")})
        (self.folder / "log.yaml").write_text(
            f"version: 1\nhandlers: {{f: {handler}}}\nroot: {{level: WARNING, handlers: [f]}}\n"
        )
        key = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (self.folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
        listener = f"{{bind_addresses: [127.0.0.1], port: {self.port}, type: http, resources: [{{names: [client]}}]}}"
        lines += [
            "server_name: localhost",
            f"listeners: [{listener}]",
            f"database: {{name: sqlite3, args: {{database: {self.folder}/hs.db}}}}",
            f"log_config: {self.folder}/log.yaml",
            f"media_store_path: {self.folder}/media",
            f"signing_key_path: {self.folder}/signing.key",
            f"registration_shared_secret: {self.secret}",
            f"macaroon_secret_key: {self.secret}",
            f"form_secret: {self.secret}",
            "report_stats: false",
            "trusted_key_servers: []",
            "suppress_key_server_warning: true",
            "presence: {enabled: false}",
            "max_upload_size: 20M",
            "bcrypt_rounds: 4",
            "user_directory: {enabled: false}",
            "stats: {enabled: false}",
            "push: {enabled: false}",
            "enable_room_list_search: false",
        ]
        (self.folder / "hs.yaml").write_text("\n".join(lines) + "\n")

    def register(self, name: str, *, admin: bool = False) -> Json:
        """Register an account and log it in. Returns user_id, access_token and device_id."""
        nonce = call(self.url, "GET", "/_synapse/admin/v1/register")["nonce"]
        words = [nonce, name, PASSWORD, "admin" if admin else "notadmin"]
        mac = hmac.new(self.secret.encode(), "\0".join(words).encode(), hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": PASSWORD, "admin": admin, "mac": mac}
        return call(self.url, "POST", "/_synapse/admin/v1/register", body)


@cache
def shared_synapse() -> Synapse:
    """Return the server of this run, which ends with it."""
    server = Synapse(run_folder() / "synapse")
    server.secret, port = shared("synapse", partial(_start_shared, server.folder)).split()
    server.port = int(port)
    return server


def _start_shared(folder: Path) -> str:
    folder.mkdir()
    return start_for_run("tests.support.synapse", str(folder), folder / "errors")


def main(folder: str) -> None:
    """Run a server until this run of the tests ends; print its secret and its port."""
    server = Synapse(Path(folder)).start()
    try:
        print(server.secret, server.port, flush=True)
        await_owner()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def call(
    url: str, method: str, path: str, body: Json | bytes | None = None, token: str = "", mime: str = "application/json"
) -> Json:
    """Make one call and return its answer. Raises MatrixError."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        return _exchange(connection, method, path, body, token, mime)
    finally:
        connection.close()


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: Json | bytes | None, token: str, mime: str
) -> Json:
    head = {"Authorization": f"Bearer {token}"} if token else {}
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request(method, path, data, {**head, "Content-Type": mime} if data is not None else head)
    answer = connection.getresponse()
    raw = answer.read()
    found: Json = json.loads(raw) if raw else {}
    if answer.status >= 300:
        raise MatrixError(answer.status, found)
    return found


class Person:
    """A person with a client that is always up to date: it knows what is visible in each room."""

    def __init__(self, url: str, account: Json) -> None:
        self.url, self.id, self.token = url, str(account["user_id"]), str(account["access_token"])
        self.device = str(account["device_id"])
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._since = ""
        self.events: dict[str, list[Json]] = {}  # by room, in their order

    def call(self, method: str, path: str, body: Json | bytes | None = None, **query: str) -> Json:
        """Make a call over one connection."""
        path += f"?{urlencode(query)}" if query else ""
        try:
            return _exchange(self._connection, method, path, body, self.token, "application/json")
        except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
            self._connection.close()
            return _exchange(self._connection, method, path, body, self.token, "application/json")

    def close(self) -> None:
        self._connection.close()

    def create_room(self, *invited: str, direct: bool = False, **more: Any) -> str:
        body = {"preset": "private_chat", "is_direct": direct, "invite": [*invited], **more}
        return str(self.call("POST", f"{C}/createRoom", body)["room_id"])

    def join(self, room: str) -> None:
        self.call("POST", f"{C}/rooms/{quote(room)}/join", {})

    def send(self, room: str, content: Json, kind: str = "m.room.message", transaction: str = "") -> str:
        path = f"{C}/rooms/{quote(room)}/send/{kind}/{transaction or secrets.token_hex(8)}"
        return str(self.call("PUT", path, content)["event_id"])

    def redact(self, room: str, event: str) -> str:
        path = f"{C}/rooms/{quote(room)}/redact/{quote(event)}/{secrets.token_hex(8)}"
        return str(self.call("PUT", path, {})["event_id"])

    def upload(self, data: bytes, name: str = "") -> str:
        return str(self.call("POST", "/_matrix/media/v3/upload", data, filename=name)["content_uri"])

    def download(self, path: str) -> bytes:
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        return self._connection.getresponse().read()

    def sync(self) -> Json:
        """Take what is new."""
        query = {"timeout": "0", "filter": json.dumps({"room": {"timeline": {"limit": 1000}}})}
        query |= {"since": self._since} if self._since else {}
        answer = self.call("GET", f"{C}/sync?{urlencode(query)}")
        self._since = answer["next_batch"]
        self.take_keys(answer)
        for room, changed in answer.get("rooms", {}).get("join", {}).items():
            known = self.events.setdefault(room, [])
            for event in changed["timeline"]["events"]:
                known.append(self.opened(room, event))
                if event["type"] == "m.room.redaction":
                    gone = event.get("redacts") or event["content"].get("redacts")
                    self.events[room] = known = [each for each in known if each["event_id"] != gone]
        return answer

    def take_keys(self, answer: Json) -> None:
        """Take the keys that came with an answer of /sync."""

    def opened(self, room: str, event: Json) -> Json:
        """Return an event as the client reads it."""
        return event

    def visible(self, room: str, sender: str, topic: str | None = None) -> list[Json]:
        """Return the messages of a sender, with their edits: {id, content}; of one thread, or all of the room."""
        self.sync()
        shown: dict[str, Json] = {}
        for event in self.events.get(room, ()):
            content = event["content"]
            relation = content.get("m.relates_to", {})
            if event["type"] != "m.room.message" or event["sender"] != sender:
                continue
            if relation.get("rel_type") == "m.replace":
                if relation["event_id"] in shown:
                    shown[relation["event_id"]]["content"] = content["m.new_content"]
                continue
            thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else ""
            if topic is None or thread == topic:
                shown[event["event_id"]] = {"id": event["event_id"], "content": content}
        return list(shown.values())


if __name__ == "__main__":
    main(sys.argv[1])
