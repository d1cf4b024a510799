"""The Slack channel: workspaces, listening, replies, files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from weakref import WeakSet

import aiohttp

from agent.messages import Attachment, Message, Thread
from agent.setting import Secret
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
from channels.shared import file_limits
from channels.shared.http_client import create_session
from channels.shared.lifecycle import check_proxy, load_certificates
from channels.shared.rate_limit import Priority, RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter, post_once
from channels.shared.texts import REPEAT_MARK
from channels.slack import SlackSettings
from channels.slack.api import SlackApi
from channels.slack.blocks import MAX_MARKDOWN_CHARS, SlackMessage, notification_text
from channels.slack.events import NAME, Json
from channels.slack.history import earlier_messages
from channels.slack.manifest import SLASH_COMMAND
from channels.slack.reply import SlackRenderer
from channels.slack.response_url import EphemeralRenderer, ResponseUrl
from channels.slack.socket_mode import SocketMode
from channels.slack.workspace import Workspace

MAX_FILE_BYTES = 1 << 30  # in both directions (slack.com/help/articles/201330736)
CALL_BURST = 3  # calls at once in a channel or a stream
UNLIMITED_CALLS_PER_SECOND = 5000.0


@dataclass(frozen=True, slots=True)
class ReplyScope(RateLimitScope):
    """The rate limit of one reply. A 429 pauses its stream only; its final uses another method (see MethodLimits)."""

    paused_until: list[float] = field(default_factory=lambda: [0.0])  # in the loop's time

    async def acquire(self, priority: Priority) -> None:
        if priority is not Priority.FINAL:
            await asyncio.sleep(max(0.0, self.paused_until[0] - asyncio.get_running_loop().time()))
        await self.limiter.acquire(self.chat, priority, group=self.group)

    def pause(self, seconds: float) -> None:
        self.paused_until[0] = asyncio.get_running_loop().time() + seconds


class SlackChannel:
    """One or more workspaces."""

    name = NAME
    limits = ChannelLimits(text_limit=MAX_MARKDOWN_CHARS, upload=MAX_FILE_BYTES, download=MAX_FILE_BYTES)
    window = 0.2

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self.workspaces: list[Workspace] = []
        self.sockets: list[SocketMode] = []
        self._response_urls: dict[str, ResponseUrl] = {}  # of interactions, by the id of their message
        # These limit one channel or stream; MethodLimits handles Slack's own limits, which count a whole workspace.
        self._channel_limiter = _rate_limiter(settings.per_channel)
        self._stream_limiter = _rate_limiter(settings.per_stream)
        self._writers: WeakSet[ReplyWriter[SlackMessage]] = WeakSet()

    async def open(self) -> None:
        """Open the session. Raises Refused for settings that cannot work."""
        check_proxy(self._settings.proxy)
        certificates = await load_certificates(self._settings.ca_file)
        self._session = create_session(certificates)
        apps: dict[Secret, list[Workspace]] = {}
        for tokens in self._settings.workspace_tokens:
            workspace = Workspace(tokens, self._settings, self._session, certificates)
            self.workspaces.append(workspace)
            apps.setdefault(tokens.app_token, []).append(workspace)
        for token, workspaces in apps.items():
            api = SlackApi("app_token", token, self._settings, self._session, certificates)
            self.sockets.append(SocketMode(api, workspaces, self._settings, self._response_urls))

    async def close(self) -> None:
        """Stop every reply and close the session."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        if self._session:
            await self._session.close()

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        async with asyncio.TaskGroup() as group:
            for workspace in self.workspaces:
                group.create_task(workspace.flush_status(), name="slack sessions")
            for socket in self.sockets:
                group.create_task(socket.run(receive, catch_up), name="slack socket")

    def readiness(self) -> Readiness:
        """Return that of the worst socket."""
        order = (Health.DOWN, Health.STARTING, Health.READY)
        worst = min(self.sockets, key=lambda socket: order.index(socket.readiness().health))
        state = worst.readiness()
        if state.detail and len(self.sockets) > 1:
            return replace(state, detail=f"{worst.workspace_names}: {state.detail}")
        return state

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        response_url = self._response_urls.get(to)
        if response_url and time.monotonic() < response_url.expires_at:
            renderer: SlackRenderer = EphemeralRenderer(
                self._find_workspace, thread, posts, to, asker, response_url=response_url
            )
        else:
            renderer = SlackRenderer(self._find_workspace, thread, posts, to, asker)
        writer = ReplyWriter(renderer, posts, self._rate_limit_scope(thread, streams=bool(asker)))
        self._writers.add(writer)
        return writer

    async def enrich(self, message: Message, earlier: int) -> Message:
        workspace = await self._find_workspace(message.thread.workspace)
        quotes = [await workspace.with_quote_author(quote) for quote in message.quotes]
        before = await earlier_messages(workspace, message, earlier)
        return replace(message, text=await workspace.with_names(message.text), quotes=(*before, *quotes))

    def spell_command(self, thread: Thread, command: str) -> str:
        """Slack's client takes "/stop" for itself. Outside of threads, the bot reads only its slash command."""
        return f"!{command}" if thread.topic or thread.chat.startswith("D") else f"{SLASH_COMMAND} {command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Do nothing: the manifest registers one native command, whose arguments are these."""

    # ------------------------------------------------------------ files

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        known = first_sent_message(posts)
        if known and known.id:
            return
        file_limits.check_outgoing_file(file, MAX_FILE_BYTES, "Slack")
        workspace = await self._find_workspace(thread.workspace)
        await self._rate_limit_scope(thread).acquire(Priority.FINAL)
        try:
            target = await workspace.api("files.getUploadURLExternal", filename=file.name, length=file.size)
            await workspace.api.upload(target["upload_url"], file.path)
        except OutcomeUnknown as error:  # the file is invisible until the upload is completed
            raise TryLater(str(error)) from None
        caption = " ".join(piece for piece in (REPEAT_MARK if known else "", file.caption) if piece)
        await post_once(
            posts, lambda: self._share_uploaded_file(workspace, thread, str(target["file_id"]), file.name, caption)
        )

    async def _share_uploaded_file(
        self, workspace: Workspace, thread: Thread, file_id: str, name: str, caption: str
    ) -> str:
        """Show an uploaded file in its thread and return its id. Checks its shares if the outcome is unknown."""
        address: Json = {"channel_id": thread.chat} | ({"thread_ts": thread.topic} if thread.topic else {})
        comment: Json = {"initial_comment": notification_text(caption)} if caption else {}
        entry = {"id": file_id, "title": name}
        try:
            await workspace.api("files.completeUploadExternal", files=[entry], **address, **comment)
        except OutcomeUnknown as error:
            if not (await workspace.api("files.info", file=file_id))["file"].get("shares"):
                raise TryLater(str(error)) from None
        return file_id

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.limit_chunks(MAX_FILE_BYTES, attachment, self._download_chunks(attachment))

    async def _download_chunks(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        team_id, _, file_id = attachment.ref.partition("/")
        workspace = await self._find_workspace(team_id)
        try:
            file = (await workspace.api("files.info", file=file_id))["file"]
        except OutcomeUnknown as error:
            raise TryLater(str(error)) from None
        except Refused as error:
            raise file_limits.no_longer_available(f"Slack ({error})") from None
        url = file.get("url_private_download") or file.get("url_private")
        if not url:
            raise Refused("is not stored on Slack")
        async with aclosing(workspace.api.download(url, file.get("mimetype") or "")) as chunks:
            async for chunk in chunks:
                yield chunk

    # ------------------------------------------------------------ parts

    async def _find_workspace(self, team_id: str) -> Workspace:
        """Return the workspace with this id. Raises ChannelError."""
        failure: ChannelError = Refused(f"no token of the configuration belongs to the workspace {team_id}")
        for workspace in sorted(self.workspaces, key=lambda workspace: workspace.account is None):
            try:
                if (await workspace.identify()).team_id == team_id:
                    return workspace
            except ChannelError as error:  # another workspace may be the right one
                failure = error
        raise failure

    def _rate_limit_scope(self, thread: Thread, *, streams: bool = False) -> RateLimitScope:
        """Return the limit of a stream, or the one that all messages of a channel share."""
        chat = f"{thread.workspace}/{thread.chat}"
        if streams and thread.topic:
            return ReplyScope(self._stream_limiter, f"{chat}/{thread.topic}", idempotent=True)
        return ReplyScope(self._channel_limiter, chat, idempotent=True)


def _rate_limiter(calls_per_second: float) -> RateLimiter:
    return RateLimiter(RateLimits(calls_per_second, CALL_BURST, overall=UNLIMITED_CALLS_PER_SECOND))
