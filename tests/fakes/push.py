"""Fakes of the two receivers of push notifications, which refuse what the real ones refuse.

Bark: `POST /push` as in route_push.go of github.com/Finb/bark-server. Without a device key, or with an unknown one, it
answers 400; a push with the `id` of an earlier one replaces it. Webhooks: the verification of Standard Webhooks
(github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md): the signature is over id, timestamp and
body, and a timestamp that is more than five minutes off is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.fakes.server import Json

TOLERANCE_SECONDS = 300


@dataclass
class PushServers:
    """A Bark server and a webhook receiver on one port. `failures` are answered with 503 first."""

    devices: set[str]
    secret: bytes
    port: int = 0
    failures: int = 0
    attempts: int = 0
    shown: dict[str, Json] = field(default_factory=dict)  # on the devices, by id
    hooks: dict[str, Json] = field(default_factory=dict)  # by webhook-id
    refused: list[str] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ping(self, _: web.Request) -> web.Response:
        return web.json_response({"code": 200, "message": "pong", "timestamp": int(time.time())})

    async def bark(self, request: web.Request) -> web.Response:
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            return web.json_response({"code": 500, "message": "push failed: busy"}, status=500)
        params = await request.json()
        if not params.get("device_key"):
            return self._refuse("device key is empty")
        if params["device_key"] not in self.devices:
            return self._refuse("failed to get device token: not found")
        self.shown[params["id"]] = params
        return web.json_response({"code": 200, "message": "success", "timestamp": int(time.time())})

    def _refuse(self, why: str) -> web.Response:
        self.refused.append(why)
        return web.json_response({"code": 400, "message": why}, status=400)

    async def webhook(self, request: web.Request) -> web.Response:
        self.attempts += 1
        body, headers = await request.read(), request.headers
        id_, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "0")
        right = hmac.new(self.secret, f"{id_}.{at}.".encode() + body, hashlib.sha256).digest()
        given = [part.partition(",") for part in headers.get("webhook-signature", "").split()]
        good = any(v == "v1" and hmac.compare_digest(base64.b64decode(sig), right) for v, _, sig in given)
        if not (id_ and good and abs(time.time() - int(at)) <= TOLERANCE_SECONDS):
            return self._refuse("No matching signature found")
        self.hooks[id_] = json.loads(body)
        return web.Response(status=204)


@asynccontextmanager
async def serve_push(*devices: str, secret: bytes = b"secret") -> AsyncIterator[PushServers]:
    """Serve both on a free port of loopback."""
    servers = PushServers(set(devices), secret)
    app = web.Application()
    app.router.add_post("/push", servers.bark)
    app.router.add_post("/hook", servers.webhook)
    app.router.add_get("/ping", servers.ping)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    servers.port = runner.addresses[0][1]
    yield servers
    await runner.cleanup()
