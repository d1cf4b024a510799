"""Socket Mode: persist events, then acknowledge them; report health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from agent.messages import Message
from agent.settings.network import choose_proxy
from catalogue import N_, _
from channels.base import (
    CatchUpSource,
    ChannelError,
    Gap,
    Health,
    NotStored,
    Readiness,
    Receive,
    Refused,
    TokenRejected,
)
from channels.shared.background import BackgroundTasks
from channels.shared.event_connection import ConnectionHealth
from channels.shared.inbound import Event
from channels.shared.texts import text_for
from channels.slack import SlackSettings
from channels.slack.api import SDK_LOG, SlackApi
from channels.slack.events import NAME, Json, candidate_workspaces, parse_payload
from channels.slack.history import missed_messages
from channels.slack.response_url import with_response_url
from channels.slack.workspace import NOT_STORED_RESEND, Workspace

log = logging.getLogger(__name__)

TOKEN_SHARED = N_(
    "Another program is connected with the same app token, and Slack gives each of them a part of the messages. Stop"
    " one of the two, or give it an app of its own."
)
CONNECT_TIMEOUT_SECONDS = 6.0  # for a handshake; later the ticket has expired
CLOSE_TIMEOUT_SECONDS = 2.0
STABLE_SECONDS = 5.0  # a connection that lasts longer did not fail
MAX_BACKOFF_SECONDS = 10.0
MAX_REJECTED_BACKOFF_SECONDS = 30.0  # after a rejected token
CONNECTION_CHECK_SECONDS = 0.25
MAX_AT_ONCE = 1000  # frames of a connection


class SocketConnection(SocketModeClient):
    """One connection of the SDK's client, without its own reconnecting.

    That would retry an expired ticket forever (slackapi/python-slack-sdk#1110), and leak tasks when it is stopped.
    """

    def __init__(self, url: str, api: SlackApi, settings: SlackSettings) -> None:
        super().__init__(
            app_token=api.web.token or "",
            web_client=api.web,
            logger=SDK_LOG,
            ping_interval=settings.ping_seconds,
            auto_reconnect_enabled=False,
        )
        self.proxy = choose_proxy(url, settings.proxy)
        self.wss_uri = url
        self.must_reconnect = False  # Slack asked for it
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    async def process_message(self) -> None:
        """Take a frame once there is room: the SDK begins a task for each of them."""
        await self._room.acquire()
        try:
            await super().process_message()  # type: ignore[no-untyped-call]  # the SDK leaves its types out
        except BaseException:  # also when it is cancelled while no frame comes
            self._room.release()
            raise

    async def run_message_listeners(self, message: Json, raw_message: str) -> None:
        try:
            await super().run_message_listeners(message, raw_message)
        finally:
            self._room.release()

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        self.must_reconnect = True

    async def close(self) -> None:
        """Close as the SDK does, but with a timeout for a silent peer."""
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
    """One app's socket for its workspaces."""

    def __init__(
        self,
        api: SlackApi,
        workspaces: Sequence[Workspace],
        settings: SlackSettings,
        background: BackgroundTasks,
    ) -> None:
        self._api = api
        self._workspaces = workspaces
        self._settings = settings
        self._app = AsyncApp(
            name=NAME,
            client=api.web,
            logger=SDK_LOG,
            before_authorize=self._store_envelope,  # a global middleware, first of all
            request_verification_enabled=False,  # a socket needs no signature
        )
        self.health = ConnectionHealth(NAME, log)
        self.is_shared = False  # other programs have connections with this app token
        self._counted = 0.0  # time.monotonic() when Slack last said how many connections there are
        self._gaps: asyncio.Queue[list[tuple[Workspace, Gap]]] = asyncio.Queue(1)  # to catch up on
        self._away_since = 0.0  # Unix time of the last sign of Slack before the oldest unread gap
        self._background = background

    @property
    def workspace_names(self) -> str:
        accounts = [workspace.account for workspace in self._workspaces]
        return ", ".join(account.workspace_name if account else "a workspace" for account in accounts)

    def readiness(self) -> Readiness:
        """Return the health as last measured."""
        state = self.health.now.with_fault(TOKEN_SHARED if self.is_shared else "")
        for workspace in self._workspaces:  # the socket has a token of its own, and one that never worked is in the log
            if workspace.account and (token := workspace.api.token_state).fault:
                state = state.with_fault(f"{workspace.account.workspace_name}: {token.fault}", token.since)
        return state

    async def probe_connection(self) -> None:
        """Ask for a connection without opening it. Raises ChannelError."""
        await self._api("apps.connections.open")

    async def run(self, receive: Receive, catch_up: CatchUpSource) -> None:
        """Stay connected until cancelled. Retries what Slack fails at; raises what `receive` raises."""
        async with asyncio.TaskGroup() as group:
            for workspace in self._workspaces:
                workspace.pipeline.receive = receive
                group.create_task(workspace.pipeline.offer_kept(), name="slack offer again")
            group.create_task(self._read_gaps(catch_up), name="slack catch-up")
            await self.health.supervise(partial(self._connect_once, catch_up), STABLE_SECONDS)

    async def _connect_once(self, catch_up: CatchUpSource) -> tuple[str, float]:
        """Serve one connection until it is lost. Returns why it ended, and the longest time to wait before the next."""
        gaps: list[tuple[Workspace, Gap]] = []
        try:
            for workspace in await self._accepted_workspaces():
                gaps.append((workspace, await catch_up.open_gap(NAME, (await workspace.identify()).team_id)))
            connection = await self._open_connection()
        except (ChannelError, TimeoutError) as error:
            silent = "Slack did not answer the handshake of the event socket."
            rejected = isinstance(error, (TokenRejected, Refused))
            longest = MAX_REJECTED_BACKOFF_SECONDS if rejected else MAX_BACKOFF_SECONDS
            return silent if isinstance(error, TimeoutError) else f"{error}.", longest
        self.health.set_health(Health.READY)
        for workspace, _gap in gaps:
            await workspace.list_people()
        if self._gaps.full():  # the waiting gap is part of this one
            self._gaps.get_nowait()
        self._gaps.put_nowait(gaps)
        last_sign = await self._serve_connection(connection)
        self._away_since = min(self._away_since, last_sign)
        return "The connection to Slack was lost.", MAX_BACKOFF_SECONDS

    async def _accepted_workspaces(self) -> list[Workspace]:
        """Return the workspaces that accept their token. Raises ChannelError if none does."""
        accepted: list[Workspace] = []
        for number, workspace in enumerate(self._workspaces, 1):
            try:
                await workspace.identify()
            except TokenRejected as error:
                if number == len(self._workspaces) and not accepted:
                    raise
                log.warning("slack.token_rejected token=%d reason=%s", number, error)
            else:
                accepted.append(workspace)
        return accepted

    async def _open_connection(self, own_connections: int = 1) -> SocketConnection:
        """Open a connection, and log if other programs have some too. Raises ChannelError or TimeoutError."""

        async def check_connections(_: object, message: Json, __: object) -> None:
            if "num_connections" not in message:
                return
            shared = message["num_connections"] > own_connections  # each receives a part of the events
            if shared:
                log.warning("slack.shared connections=%d", message["num_connections"])
            self.is_shared, self._counted = shared, time.monotonic()

        url = str((await self._api("apps.connections.open"))["url"])
        connection = SocketConnection(url, self._api, self._settings)
        connection.message_listeners.append(check_connections)
        connection.socket_mode_request_listeners.append(self._handle_request)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await connection.connect()  # type: ignore[no-untyped-call]  # the SDK leaves its types out
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _serve_connection(self, connection: SocketConnection) -> float:
        """Return the Unix time of the last sign of Slack when the connection is lost.

        If Slack asks to reconnect, open the new connection before closing the old.
        """
        opened = time.time()
        try:
            while await connection.is_connected():
                recheck = self.is_shared and time.monotonic() - self._counted > self._settings.shared_check_seconds
                if connection.must_reconnect or recheck:
                    connection.must_reconnect = False
                    try:
                        new = await self._open_connection(2)
                    except (ChannelError, TimeoutError) as error:
                        log.info("slack.not_reconnected reason=%s", error)
                    else:
                        await connection.close()
                        connection, opened = new, time.time()
                await asyncio.sleep(CONNECTION_CHECK_SECONDS)
            return connection.last_ping_pong_time or opened
        finally:
            await connection.close()

    # ------------------------------------------------------------ envelopes

    async def _handle_request(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        started = time.time()
        await send_async_response(client, request, await run_async_bolt_app(self._app, request), started)

    async def _store_envelope(self, body: Mapping[str, Any]) -> BoltResponse:
        """Store the event of an envelope. Answers 200, also for one to ignore, else Slack sends it again; or 503."""
        stored = await self._store_payload(dict(body))
        return BoltResponse(status=200 if stored else 503, body="")

    async def _store_payload(self, payload: Json) -> bool:
        """Store the event. Returns whether to acknowledge it, also one to ignore, because Slack repeats all others."""
        workspace = self._workspace_of(payload)
        if workspace is None or workspace.account is None:
            log.warning("slack.unknown_workspace type=%s", payload.get("type"))
            return True
        event = parse_payload(payload, workspace.account)
        if event is None:
            return True
        url = str(payload.get("response_url") or "")
        if isinstance(event, Message):
            event = with_response_url(event, url)
        try:
            await self._store_event(workspace, event, payload)
        except NotStored:
            if "event" in payload:  # Slack delivers it again for some minutes only
                workspace.pipeline.keep(event, partial(self._store_event, workspace, event, payload))
                return False
            if url:  # an interaction: ask the person to repeat it
                text = text_for(event, NOT_STORED_RESEND) if isinstance(event, Message) else _(NOT_STORED_RESEND)
                answer = {"text": text, "replace_original": False, "response_type": "ephemeral"}
                self._background.start_best_effort(workspace.api.post_to_response_url(url, answer), "slack not stored")
        return True

    async def _store_event(self, workspace: Workspace, event: Event, payload: Json) -> None:
        """Store and acknowledge an event; an empty payload is one of the history. Raises NotStored."""
        pipeline, notify = workspace.pipeline, "event" in payload
        if not isinstance(event, Message):
            await pipeline.store([event], notify=notify)
            return
        event, receipt = await pipeline.complete_and_store(event, workspace.with_author, notify=notify)
        acknowledging = workspace.acknowledge(event, receipt, payload)
        self._background.start_best_effort(acknowledging, f"slack acknowledge {event.key}")

    def _workspace_of(self, payload: Json) -> Workspace | None:
        known = {workspace.account.team_id: workspace for workspace in self._workspaces if workspace.account}
        return next((known[name] for name in candidate_workspaces(payload) if name in known), None)

    async def _read_gaps(self, catch_up: CatchUpSource) -> None:
        """Read the history of every gap, one after the other; a lost socket does not interrupt it."""
        while True:
            gaps = await self._gaps.get()
            away_since, self._away_since = self._away_since, float("inf")
            for workspace, gap in gaps:
                missed = missed_messages(workspace, gap.heard, catch_up, away_since)
                if not await workspace.pipeline.fill_gap(catch_up, gap, missed, partial(self._store_missed, workspace)):
                    self._away_since = min(self._away_since, away_since)  # the next gap begins with this one

    async def _store_missed(self, workspace: Workspace, messages: Sequence[Event]) -> None:
        for message in messages:
            await workspace.pipeline.retry_until_stored(partial(self._store_event, workspace, message, {}))
