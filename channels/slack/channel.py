"""The Slack channel: workspaces, listening, replies, files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from weakref import WeakSet

import aiohttp

from agent.messages import Attachment, Message, Thread
from agent.setting import Secret
from catalogue import _
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
from channels.shared.reply_writer import ReplyWriter, post_once
from channels.shared.texts import REPEAT_MARK
from channels.slack import SlackSettings
from channels.slack.api import SlackApi
from channels.slack.blocks import MAX_MARKDOWN_CHARS, SlackMessage, notification_text
from channels.slack.events import NAME, Json
from channels.slack.history import earlier_messages
from channels.slack.manifest import SLASH_COMMAND
from channels.slack.method_limits import ReplyLimit
from channels.slack.reply import SlackRenderer
from channels.slack.response_url import EphemeralRenderer, ResponseUrl
from channels.slack.socket_mode import SocketMode
from channels.slack.workspace import Workspace

MAX_FILE_BYTES = 1 << 30  # in both directions (slack.com/help/articles/201330736)
SHARE_CHECK_SECONDS = (0.5, 1.0, 2.0, 4.0)  # between looks whether an upload of unknown outcome was shared


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
                group.create_task(workspace.flush_ends(), name="slack sessions")
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
        writer = ReplyWriter(renderer, posts, ReplyLimit(renderer.reserve))
        self._writers.add(writer)
        return writer

    async def enrich(self, message: Message, earlier: int) -> Message:
        workspace = await self._find_workspace(message.thread.workspace)
        quotes = [await workspace.with_quote_names(quote) for quote in message.quotes]
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
        try:
            target = await workspace.api("files.getUploadURLExternal", filename=file.name, length=file.size)
            await workspace.api.upload(target["upload_url"], file.path)
        except OutcomeUnknown as error:  # the file is invisible until the upload is completed
            raise TryLater(str(error)) from None
        caption = " ".join(piece for piece in (_(REPEAT_MARK) if known else "", file.caption) if piece)
        await post_once(
            posts, lambda: self._share_uploaded_file(workspace, thread, str(target["file_id"]), file.name, caption)
        )

    async def _share_uploaded_file(
        self, workspace: Workspace, thread: Thread, file_id: str, name: str, caption: str
    ) -> str:
        """Show an uploaded file in its thread and return its id.

        If the outcome is unknown, wait for its shares, which Slack adds some time after the call.
        """
        address: Json = {"channel_id": thread.chat} | ({"thread_ts": thread.topic} if thread.topic else {})
        comment: Json = {"initial_comment": notification_text(caption)} if caption else {}
        entry = {"id": file_id, "title": name}
        try:
            await workspace.api("files.completeUploadExternal", files=[entry], **address, **comment)
        except OutcomeUnknown as error:
            for seconds in SHARE_CHECK_SECONDS:
                if (await workspace.api("files.info", file=file_id))["file"].get("shares"):
                    return file_id
                await asyncio.sleep(seconds)
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
