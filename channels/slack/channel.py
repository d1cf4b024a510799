"""The Slack channel itself: workspaces, listening, replies, files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from weakref import WeakSet

import aiohttp

from agent.messages import Attachment, Message, Thread
from agent.secret import Secret
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    CommandInfo,
    Health,
    OutcomeUnknown,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
    TryLater,
    first_sent_message,
)
from channels.shared import file_limits, lifecycle
from channels.shared.rate_limit import Priority, RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter, post_once
from channels.shared.texts import REPEAT_MARK
from channels.slack import SlackSettings
from channels.slack.api import Json, SlackApi, TokenRejected
from channels.slack.blocks import MAX_MARKDOWN_CHARS, SlackMessage, notification_text
from channels.slack.events import NAME
from channels.slack.history import earlier_messages
from channels.slack.manifest import REQUIRED_SCOPES, SCOPES
from channels.slack.reply import SlackRenderer
from channels.slack.response_url import EphemeralRenderer, ResponseUrl
from channels.slack.socket_mode import SocketMode
from channels.slack.workspace import Workspace

MAX_FILE_BYTES = 1 << 30  # bytes of a file, in and out (slack.com/help/articles/201330736)
SCOPES_FIX = "add the scopes (`fawn slack manifest` has all of them) and install the app again"
CALL_BURST = 3  # calls at once in a channel or a stream


@dataclass(frozen=True, slots=True)
class ReplyScope(RateLimitScope):
    """The place of one reply. When Slack asks it to wait, its stream waits; its final is another method's call, and
    `Calls` knows whether that may be made."""

    shut: list[float] = field(default_factory=lambda: [0.0])  # until when, in the loop's time

    async def acquire(self, priority: Priority) -> None:
        if priority is not Priority.FINAL:
            await asyncio.sleep(max(0.0, self.shut[0] - asyncio.get_running_loop().time()))
        await self.budget.acquire(self.chat, priority, group=self.group)

    def pause(self, seconds: float) -> None:
        self.shut[0] = asyncio.get_running_loop().time() + seconds


class SlackChannel:
    """One or more workspaces."""

    name = NAME
    limits = ChannelLimits(text_limit=MAX_MARKDOWN_CHARS, upload=MAX_FILE_BYTES, download=MAX_FILE_BYTES)
    window = 0.2

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._teams: list[Workspace] = []
        self._sockets: list[SocketMode] = []
        self._ways: dict[str, ResponseUrl] = {}  # how interactions can be answered, by the id of their message
        # Tiers count a whole workspace: 429s are waited out per method (Calls), only what one place may have is paced.
        self._channels = RateLimiter(RateLimits(settings.per_channel, CALL_BURST, overall=5000))
        self._streams = RateLimiter(RateLimits(settings.per_stream, CALL_BURST, overall=5000))
        self._writers: WeakSet[ReplyWriter[SlackMessage]] = WeakSet()

    async def open(self) -> None:
        """Get ready to make calls. Raises Refused when the settings do not allow it."""
        kind, _, _ = self._settings.proxy.partition("://")
        if kind not in ("", "http", "https"):
            raise Refused(f"a proxy of kind {kind[:10]} cannot be used: `proxy` takes http://… or https://…")
        trust = await lifecycle.load_certificates(self._settings.ca_file)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=30.0)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15.0, ssl=trust)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        apps: dict[Secret, list[Workspace]] = {}
        for pair in self._settings.pairs:
            team = Workspace(pair, self._settings, self._session, trust)
            self._teams.append(team)
            apps.setdefault(pair.app_token, []).append(team)
        for token, members in apps.items():
            calls = SlackApi("app_token", token, self._settings, self._session, trust)
            self._sockets.append(SocketMode(calls, members, self._settings, self._ways))

    async def close(self) -> None:
        """Stop every reply and hang up."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        if self._session:
            await self._session.close()

    async def probe_accounts(self) -> str:
        """The accounts, and whether their sockets may be opened. Raises Refused with what to do."""
        try:
            return await self._probe_accounts()
        except (Refused, TokenRejected) as error:
            raise Refused(f"{error}.") from None
        except ChannelError as error:
            raise Refused(f"{error}. Check base_url, proxy and the network.") from None

    async def _probe_accounts(self) -> str:
        found = []
        for team in self._teams:
            me, granted = await team.identify(), await team.calls.scopes()
            if granted and (missing := sorted(REQUIRED_SCOPES - granted)):
                raise Refused(f"In {me.workspace} the app lacks {', '.join(missing)}: {SCOPES_FIX}")
            less = f" without {', '.join(lacking)}" if granted and (lacking := sorted(SCOPES.keys() - granted)) else ""
            found.append(f"@{me.name} in {me.workspace} ({me.team}){less}")
        for socket in self._sockets:
            await socket.probe_connection()
        return f"connected as {' and '.join(found)}"

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        async with asyncio.TaskGroup() as group:
            for team in self._teams:
                group.create_task(team.flush_status(), name="slack sessions")
            for socket in self._sockets:
                group.create_task(socket.run(receive, past), name="slack socket")

    def readiness(self) -> Readiness:
        """That of the worst socket."""
        order = (Health.DOWN, Health.STARTING, Health.READY)
        worst = min(self._sockets, key=lambda socket: order.index(socket.readiness().health))
        state = worst.readiness()
        if state.detail and len(self._sockets) > 1:
            return replace(state, detail=f"{worst.workspaces}: {state.detail}")
        return state

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        way = self._ways.get(to)
        if way and time.monotonic() < way.until:
            surface: SlackRenderer = EphemeralRenderer(self._workspace_of, thread, posts, to, asker, way=way)
        else:
            surface = SlackRenderer(self._workspace_of, thread, posts, to, asker)
        writer = ReplyWriter(surface, posts, self._rate_limit_scope(thread, streams=bool(asker)))
        self._writers.add(writer)
        return writer

    async def enrich(self, message: Message, most: int) -> Message:
        workspace = message.thread.workspace
        team = await self._workspace_of(workspace)
        quotes = [await team.with_quote_author(quote, workspace) for quote in message.quotes]
        before = await earlier_messages(team, message, most)
        return replace(message, text=await team.with_names(message.text, workspace), quotes=(*before, *quotes))

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Nothing to register: the manifest has the one native command, which takes all of them as its words."""

    # ------------------------------------------------------------ files

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        known = first_sent_message(posts)
        if known and known.id:
            return
        file_limits.check_outgoing_file(file, MAX_FILE_BYTES, "Slack")
        team = await self._workspace_of(thread.workspace)
        place = self._rate_limit_scope(thread)
        await place.acquire(Priority.FINAL)
        try:
            got = await team.calls("files.getUploadURLExternal", filename=file.name, length=file.size)
            await team.calls.upload(got["upload_url"], file.path)
        except OutcomeUnknown as error:  # nobody sees a file before it is completed
            raise TryLater(str(error)) from None
        caption = " ".join(piece for piece in (REPEAT_MARK if known else "", file.caption) if piece)
        await post_once(posts, lambda: self._share_uploaded_file(team, thread, str(got["file_id"]), file.name, caption))

    async def _share_uploaded_file(self, team: Workspace, thread: Thread, file_id: str, name: str, caption: str) -> str:
        """Show an uploaded file in its thread; gives its id. With no answer, the file tells whether it is there."""
        where: Json = {"channel_id": thread.chat} | ({"thread_ts": thread.topic} if thread.topic else {})
        said = {"initial_comment": notification_text(caption)} if caption else {}
        entry = {"id": file_id, "title": name}
        try:
            await team.calls("files.completeUploadExternal", files=[entry], **where, **said)
        except OutcomeUnknown as error:
            if not (await team.calls("files.info", file=file_id))["file"].get("shares"):
                raise TryLater(str(error)) from None
        return file_id

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.limit_chunks(MAX_FILE_BYTES, attachment, self._download_chunks(attachment))

    async def _download_chunks(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        workspace, _, file_id = attachment.ref.partition("/")
        team = await self._workspace_of(workspace)
        try:
            file = (await team.calls("files.info", file=file_id))["file"]
        except OutcomeUnknown as error:
            raise TryLater(str(error)) from None
        except Refused as error:
            raise Refused(f"is no longer available on Slack ({error})") from None
        url = file.get("url_private_download") or file.get("url_private")
        if not url:
            raise Refused("is not stored on Slack")
        async with aclosing(team.calls.download(url, file.get("mimetype") or "")) as chunks:
            async for chunk in chunks:
                yield chunk

    # ------------------------------------------------------------ parts

    async def _workspace_of(self, workspace: str) -> Workspace:
        """The workspace of that name. Raises ChannelError."""
        trouble: ChannelError = Refused(f"no token of the configuration belongs to the workspace {workspace}")
        for team in sorted(self._teams, key=lambda team: team.me is None):
            try:
                if (await team.identify()).team == workspace:
                    return team
            except ChannelError as error:  # perhaps it is another one's
                trouble = error
        raise trouble

    def _rate_limit_scope(self, thread: Thread, *, streams: bool = False) -> RateLimitScope:
        """A stream has its own pace; messages and their changes share that of their channel."""
        where = f"{thread.workspace}/{thread.chat}"
        if streams and thread.topic:
            return ReplyScope(self._streams, f"{where}/{thread.topic}", idempotent=True)
        return ReplyScope(self._channels, where, idempotent=True)
