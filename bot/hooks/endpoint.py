"""Take what other systems post: check it, store it once, and answer when it is committed.

Fetch deliveries of hooks from a relay, and take each as if it had come here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent.backoff import backoff_seconds
from bot.base.background import run_forever
from bot.base.signatures import REPEAT_SECONDS, BadSignature, Proof, check_signature, is_needed_before_body
from bot.commands.feature import Door, Service
from bot.config.hooks import MAX_BODY_BYTES, HookConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.hooks.events import BadBody, HookEvent, read_event
from bot.hooks.posting import enqueue_look
from bot.http.route import HttpProblem, Route, UnsignedBodies, json_response, read_headers
from bot.rights.current import Current
from bot.storage import hooks
from channels.base import TryLater
from channels.shared.http_client import HttpClient
from channels.shared.lifecycle import opened
from channels.shared.relay_client import Delivery, RelayClient

if TYPE_CHECKING:
    from aiohttp import web


log = logging.getLogger(__name__)

AUDIT_SECONDS = 60.0  # between two rows about refusals of the same kind: whoever guesses does not fill the audit


@dataclass(slots=True)
class HookEndpoint:
    """The route of all hooks, and what a relay kept for them."""

    door: Door | Service
    _refusals: Refusals = field(init=False)
    _bodies: UnsignedBodies = field(default_factory=UnsignedBodies)

    def __post_init__(self) -> None:
        self._refusals = Refusals(self.door.store)

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("POST", "/hooks/{name}", self._take, body_bytes=MAX_BODY_BYTES)]

    async def _take(self, request: web.Request) -> web.StreamResponse:
        name, now = request.match_info["name"], time.time()
        hook = self.door.current.config.hooks.get(name)
        try:
            if hook is None:
                what = "There is no hook of this name."
                raise HttpProblem(
                    404, "unknown_hook", what, "Compare the end of the address with `hooks` in config.yaml."
                )
            headers = read_headers(request)
            if is_needed_before_body(hook):  # a stranger's body is not read
                _prove(hook, headers, b"", now)
            proof, event = _check(hook, headers, await self._bodies.read(request), now)
        except HttpProblem as problem:
            await self._refusals.note(name if hook else "", problem.code, now)
            raise
        if event.ignored:
            return json_response(200, {"state": "ignored", "kind": event.kind})
        id, is_new = await self._keep(name, proof, event, now)
        return json_response(202 if is_new else 200, {"id": id, "state": "stored" if is_new else "stored before"})

    async def take_relayed(self, name: str, headers: Mapping[str, str], body: bytes, received: float) -> None:
        """Take what a relay kept, as of the time at which it came there. What is refused is counted, as it is here.

        Raises StorageError: then it has to come again.
        """
        hook = self.door.current.config.hooks.get(name)
        if hook is None:  # it was taken out of the configuration a moment ago
            await self._refusals.note("", "unknown_hook", time.time())
            return
        try:
            proof, event = _check(hook, headers, body, received)
        except HttpProblem as problem:
            await self._refusals.note(name, problem.code, time.time())
            return
        if not event.ignored:
            await self._keep(name, proof, event, received)

    async def _keep(self, name: str, proof: Proof, event: HookEvent, now: float) -> tuple[int, bool]:
        id, is_new = await self.door.store.run(partial(_store, hook=name, proof=proof, event=event, now=now))
        log.info("hook.received hook=%s id=%d sender=%s new=%s", name, id, event.sender, is_new)
        return id, is_new


def _check(hook: HookConfig, headers: Mapping[str, str], body: bytes, now: float) -> tuple[Proof, HookEvent]:
    """Return what a delivery proves and says. Raises HttpProblem."""
    proof = _prove(hook, headers, body, now)
    try:
        return proof, read_event(hook, headers, body)
    except BadBody as error:
        fix = "Send one JSON object in UTF-8, or a line of text as text/plain."
        raise HttpProblem(400, "bad_body", f"The body cannot be read: {error}.", fix) from error


def _prove(hook: HookConfig, headers: Mapping[str, str], body: bytes, now: float) -> Proof:
    try:
        return check_signature(hook, headers, body, now)
    except BadSignature as error:
        raise HttpProblem(401, error.code, error.what, error.fix) from error


def _store(execute: Execute, hook: str, proof: Proof, event: HookEvent, now: float) -> tuple[int, bool]:
    """Store a delivery, and have it posted; return its number, and whether it is new.

    Without an id of its sender, and unless its signature makes each body one delivery, the same body is another attempt
    only for a while: an alert that goes on is sent again as it was.
    """
    if proof.covers_all:
        key = f"body:{proof.digest}"
    elif proof.id:
        key = f"id:{proof.id}"
    elif known := hooks.find_same_body(execute, hook, proof.digest, now - REPEAT_SECONDS):
        return known, False
    else:
        key = f"body:{proof.digest}:{now:.6f}"
    id, is_new = hooks.store_delivery(execute, hook, key, proof.digest, event.subject, event.dump(), now)
    if is_new:
        enqueue_look(execute, hook)
    return id, is_new


@dataclass(slots=True)
class Refusals:
    """Counts what is refused, and writes it at once, then at most once a minute for each hook and reason."""

    store: Database
    _pending: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    async def note(self, hook: str, reason: str, now: float) -> None:
        """Count a refusal. `hook` is "" for one that does not exist."""
        count, written = self._pending.get((hook, reason), (0, float("-inf")))
        if 0 <= now - written < AUDIT_SECONDS:
            self._pending[hook, reason] = (count + 1, written)
            return
        self._pending[hook, reason] = (0, now)
        log.warning("hook.refused hook=%s reason=%s count=%d", hook, reason, count + 1)
        await self.store.run(partial(_record_refusals, hook=hook, reason=reason, count=count + 1, now=now))


def _record_refusals(execute: Execute, hook: str, reason: str, count: int, now: float) -> None:
    hooks.count_refusals(execute, hook, reason, count, now)
    what: dict[str, int | str] = {"hook": hook, "reason": reason, "count": count}
    audit.record(execute, AuditEvent(AuditKind.ACCESS_DENIED, what=what))


MAX_BACKOFF_SECONDS = 10.0  # while the relay does not answer
IDLE_SECONDS = 5.0  # between two looks whether there is a relay


@dataclass(slots=True)
class RelayedHooks:
    """Fetches for all hooks while the configuration names a relay."""

    current: Current
    endpoint: HookEndpoint

    async def serve(self) -> None:
        """Fetch until cancelled; another configuration begins a new connection."""
        await run_forever("relay", self._serve_relay)

    async def _serve_relay(self) -> None:
        relay = self.current.config.relay
        if not relay.url or not self.current.config.hooks:
            await asyncio.sleep(IDLE_SECONDS)
            return
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(opened(HttpClient("relay", relay.proxy, relay.ca_file)))
            client = RelayClient(http, relay.url, relay.key.reveal())
            failures = 0
            while self.current.config.relay == relay:
                try:
                    await client.fetch(self.current.config.hooks, self._take)
                    failures = 0
                except TryLater as error:
                    failures += 1
                    log.log(logging.WARNING if failures == 1 else logging.DEBUG, "relay.unreachable reason=%s", error)
                    await asyncio.sleep(backoff_seconds(failures, MAX_BACKOFF_SECONDS))

    async def _take(self, delivery: Delivery) -> None:
        await self.endpoint.take_relayed(delivery.source, delivery.headers, delivery.body, delivery.received)
