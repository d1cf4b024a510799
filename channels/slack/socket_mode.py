"""Socket Mode: persist events, then acknowledge them; report health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from agent.messages import Kind, Message, Unreadable
from channels.base import CatchUpSource, ChannelError, Gap, Health, NotStored, Readiness, Receive, Refused
from channels.shared.health import ConnectionHealth, backoff_seconds
from channels.slack import SlackSettings
from channels.slack.api import SDK, Json, SlackApi, TokenRejected
from channels.slack.events import NAME, candidate_workspaces, parse_payload
from channels.slack.history import missed_messages
from channels.slack.response_url import ResponseUrl
from channels.slack.workspace import NOT_STORED_RESEND, AuthorUnknown, Workspace

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 6.0  # seconds for a handshake; after that the ticket is stale and a new one is asked for
CLOSE_TIMEOUT_SECONDS = 2.0  # seconds to hang up
BRIEF_SECONDS = 5.0  # a connection that lasted so many seconds was a good one
MAX_BACKOFF_SECONDS = 10.0  # seconds between two tries
ANSWERABLE_SECONDS = 29 * 60.0  # seconds that an interaction can be answered by its URL
LOOK_SECONDS = 0.25  # seconds between two looks at the connection


class SocketConnection(SocketModeClient):
    """One connection of the SDK's client, which does not connect again by itself: that retries a stale ticket for ever
    (slackapi/python-slack-sdk#1110), and leaves tasks behind when it is stopped meanwhile."""

    def __init__(self, url: str, calls: SlackApi, settings: SlackSettings) -> None:
        super().__init__(
            app_token=calls.web.token or "",
            web_client=calls.web,
            logger=SDK,
            ping_interval=settings.ping_seconds,
            auto_reconnect_enabled=False,
        )
        self.proxy = settings.proxy or None  # not the environment's
        self.wss_uri = url
        self.leaving = False  # Slack asked to connect anew

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        self.leaving = True

    async def close(self) -> None:
        """As the SDK does, but a peer that says nothing is not waited for."""
        self.closed = True
        tasks = [task for task in (self.message_processor, self.current_session_monitor, self.message_receiver) if task]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                if self.current_session:
                    await self.current_session.close()
        await self.aiohttp_client_session.close()


class SocketMode:
    """One app's socket, and the workspaces that it speaks for. `ways` remembers how interactions are answered."""

    def __init__(
        self, calls: SlackApi, members: Sequence[Workspace], settings: SlackSettings, ways: dict[str, ResponseUrl]
    ) -> None:
        self._calls = calls
        self._members = members
        self._settings = settings
        self._ways = ways
        self._app = AsyncApp(
            name=NAME,
            client=calls.web,
            logger=SDK,
            before_authorize=self._store_envelope,  # a global middleware, first of all
            request_verification_enabled=False,  # a socket needs no signature
        )
        self._vitals = ConnectionHealth(NAME, log)
        self._failures = 0
        self._absences: asyncio.Queue[list[tuple[Workspace, Gap]]] = asyncio.Queue(1)  # to catch up with
        self._receive: Receive | None = None
        self._side: asyncio.TaskGroup | None = None
        self._stalled: dict[str, tuple[Workspace, Message | Unreadable, Json]] = {}  # offered, and could not be stored

    def readiness(self) -> Readiness:
        return self._vitals.now

    @property
    def workspaces(self) -> str:
        """The workspaces, as far as they are known."""
        return ", ".join(team.me.workspace if team.me else "a workspace" for team in self._members)

    async def probe_connection(self) -> None:
        """Ask for a connection, and leave it. Raises ChannelError."""
        await self._calls("apps.connections.open")

    async def run(self, receive: Receive, past: CatchUpSource) -> None:
        """Stay connected until cancelled. What Slack does is waited out here; `receive` alone may raise."""
        self._receive = receive
        async with asyncio.TaskGroup() as side:
            self._side = side
            side.create_task(self._offer_again(), name="slack stalled")
            side.create_task(self._catch_up(past), name="slack catch-up")
            while True:
                gaps: list[tuple[Workspace, Gap]] = []
                try:
                    for team in await self._connected_workspaces():
                        gaps.append((team, await past.open_gap(NAME, (await team.identify()).team)))
                    line = await self._open_connection()
                except (ChannelError, TimeoutError) as error:
                    await asyncio.sleep(self._note_failure(error))
                    continue
                self._vitals.set_health(Health.READY)
                if self._absences.full():  # one that waits is part of this one
                    self._absences.get_nowait()
                self._absences.put_nowait(gaps)
                began = time.monotonic()
                await self._serve_connection(line)
                self._vitals.set_health(Health.DOWN, "The connection to Slack broke off.")
                self._failures = self._failures + 1 if time.monotonic() - began < BRIEF_SECONDS else 0
                await asyncio.sleep(backoff_seconds(self._failures, MAX_BACKOFF_SECONDS) if self._failures else 0)

    async def _connected_workspaces(self) -> list[Workspace]:
        """The workspaces that let us in: one that does not is nobody else's trouble. Raises ChannelError."""
        there: list[Workspace] = []
        for number, team in enumerate(self._members, 1):
            try:
                await team.identify()
            except TokenRejected as error:
                if number == len(self._members) and not there:
                    raise
                log.warning("slack.locked_out token=%d reason=%s", number, error)
            else:
                there.append(team)
        return there

    async def _open_connection(self, own: int = 1) -> SocketConnection:
        """A new connection, so that we have `own`. Raises ChannelError, TimeoutError."""

        async def greeted(_: object, message: Json, __: object) -> None:
            if message.get("num_connections", 0) > own:
                log.info("slack.shared connections=%d", message["num_connections"])  # each gets a part of the events

        url = str((await self._calls("apps.connections.open"))["url"])
        line = SocketConnection(url, self._calls, self._settings)
        line.message_listeners.append(greeted)
        line.socket_mode_request_listeners.append(self._handle_request)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await line.connect()  # type: ignore[no-untyped-call]  # the SDK leaves its types out
        except BaseException:
            await line.close()
            raise
        return line

    async def _serve_connection(self, line: SocketConnection) -> None:
        """Until the connection is broken or deaf. When Slack wants us to move, the new one is there before the old
        one goes."""
        try:
            while await line.is_connected():
                if line.leaving:
                    line.leaving = False
                    try:
                        new = await self._open_connection(2)
                    except (ChannelError, TimeoutError) as error:
                        log.info("slack.not_moved reason=%s", error)
                    else:
                        await line.close()
                        line = new
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await line.close()

    # ------------------------------------------------------------ envelopes

    async def _handle_request(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """As the SDK's handler does."""
        started = time.time()
        await send_async_response(client, request, await run_async_bolt_app(self._app, request), started)

    async def _store_envelope(self, body: Mapping[str, Any]) -> BoltResponse:
        """Store what an envelope carries. 200 acknowledges it, whatever it is: what nobody answers would come again.
        503 does not."""
        payload = dict(body)
        team = self._workspace_of(payload)
        if team is None or team.me is None:
            log.warning("slack.unknown_workspace type=%s", payload.get("type"))
            return BoltResponse(status=200, body="")
        event = parse_payload(payload, team.me)
        if event is None:
            return BoltResponse(status=200, body="")
        if isinstance(event, Message) and payload.get("response_url") and event.kind is not Kind.CLICK:
            self._remember_response_url(event, payload["response_url"])
        try:
            await self._store_event(team, event, payload)
        except NotStored as error:
            log.error("slack.not_stored key=%s reason=%s", event.key, error)  # noqa: TRY400 — the reason is enough
            return self._not_stored(team, event, payload, quietly=isinstance(error, AuthorUnknown))
        return BoltResponse(status=200, body="")

    def _remember_response_url(self, event: Message, url: str) -> None:
        """How an interaction is answered; those that nobody can answer any more are forgotten."""
        now = time.monotonic()
        for old in [known for known, way in self._ways.items() if way.until < now]:
            del self._ways[old]
        self._ways[event.id] = ResponseUrl(url, now + ANSWERABLE_SECONDS, only=event.kind is Kind.COMMAND)

    async def _store_event(self, team: Workspace, event: Message | Unreadable, payload: Json) -> None:
        assert self._receive is not None  # noqa: S101 — set for as long as run() runs
        if isinstance(event, Message):
            event = await team.with_author(event)
        [receipt] = await self._receive([event])
        self._stalled.pop(event.key, None)
        self._run_in_background(team.acknowledge(event, receipt, payload), f"sign {event.key}")

    def _not_stored(
        self, team: Workspace, event: Message | Unreadable, payload: Json, *, quietly: bool
    ) -> BoltResponse:
        """Slack offers an event again for some minutes, we ourselves for as long as it takes; an interaction is not
        worth waiting for: the person is asked to repeat it."""
        if "event" not in payload:
            if url := payload.get("response_url"):
                answer = {"text": NOT_STORED_RESEND, "replace_original": False, "response_type": "ephemeral"}
                self._run_in_background(team.calls.post_to_response_url(url, answer), "not stored")
            return BoltResponse(status=200, body="")
        self._stalled[event.key] = (team, event, payload)
        if isinstance(event, Message) and not quietly:
            self._run_in_background(team.apologize(event), "not stored")
        return BoltResponse(status=503, body="")

    async def _offer_again(self) -> None:
        tries = 0
        while True:
            await asyncio.sleep(backoff_seconds(tries, MAX_BACKOFF_SECONDS) if self._stalled else 1.0)
            failed = 0
            for team, event, payload in list(self._stalled.values()):
                try:
                    await self._store_event(team, event, payload)
                except AuthorUnknown:  # one person's trouble
                    failed = 1
                except NotStored:
                    failed = 1
                    break
            tries = tries + 1 if failed else 0

    def _workspace_of(self, payload: Json) -> Workspace | None:
        """The workspace that an envelope is meant for."""
        known = {team.me.team: team for team in self._members if team.me}
        return next((known[name] for name in candidate_workspaces(payload) if name in known), None)

    async def _catch_up(self, past: CatchUpSource) -> None:
        """After every absence, one after the other: this needs no socket, and outlives it."""
        while True:
            for team, gap in await self._absences.get():
                count, stored = 0, True
                try:
                    async for message in missed_messages(team, gap.heard, past):
                        stored = await self._store_missed(team, message) and stored
                        count += 1
                    if stored:
                        await past.close_gap(gap)
                except (ChannelError, NotStored) as error:
                    log.warning("slack.not_caught_up reason=%s", error)
                log.info("slack.caught_up workspace=%s messages=%d", team.me.team if team.me else "", count)

    async def _store_missed(self, team: Workspace, message: Message) -> bool:
        """Store what the history told, later if it cannot be done now (False)."""
        try:
            await self._store_event(team, message, {})
        except NotStored:
            self._stalled[message.key] = (team, message, {})
            return False
        return True

    def _run_in_background(self, call: Awaitable[object], name: str) -> None:
        """Make a call that nothing depends on."""

        async def quietly() -> None:
            try:
                await call
            except ChannelError as error:
                log.debug("slack.sign task=%s reason=%s", name, error)
            except Exception:  # the boundary of a sign: listening goes on without it
                log.exception("slack.sign_failed task=%s", name)

        assert self._side is not None  # noqa: S101 — set for as long as run() runs
        self._side.create_task(quietly(), name=f"slack {name}")

    # ------------------------------------------------------------ trouble

    def _note_failure(self, error: Exception) -> float:
        """Take note of a failed connection; gives the seconds to wait."""
        self._failures += 1
        if isinstance(error, TimeoutError):
            self._vitals.set_health(Health.DOWN, "Slack does not answer the handshake of the event socket.")
        else:
            self._vitals.set_health(Health.DOWN, f"{error}.")
        return backoff_seconds(
            self._failures, 30.0 if isinstance(error, (TokenRejected, Refused)) else MAX_BACKOFF_SECONDS
        )
