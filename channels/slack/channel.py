"""The Slack channel: workspaces, listening, replies, files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from agent.messages import Attachment, Message, Thread
from agent.setting import Secret
from catalogue import _
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    Health,
    Home,
    OutcomeUnknown,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
    TryLater,
)
from channels.shared import files
from channels.shared.caches import LatestDict
from channels.shared.files import joined_captions
from channels.shared.http_client import HttpClient
from channels.shared.platform_channel import FilePost, FileRules, PlatformChannel
from channels.shared.reply_writer import ReplyWriter
from channels.shared.texts import REPEAT_MARK
from channels.slack import SlackSettings
from channels.slack.api import SlackApi, session_address
from channels.slack.blocks import MAX_TEXT_CHARS, caption_text, home_view
from channels.slack.events import NAME, Json
from channels.slack.history import earlier_messages, viewed_messages
from channels.slack.manifest import SLASH_COMMAND
from channels.slack.reply import SlackRenderer, SlackReplyLimit
from channels.slack.response_url import EphemeralRenderer
from channels.slack.socket_mode import SocketMode
from channels.slack.workspace import Workspace

MAX_FILE_BYTES = 1 << 30  # in both directions (slack.com/help/articles/201330736)
MAX_SESSION_TITLE_CHARS = 200  # docs.slack.dev/reference/methods/agents.sessions.rename
MAX_FILES_PER_MESSAGE = 10
MAX_FETCHED = 1000  # files whose names are known until they are stored
SHARE_CHECK_SECONDS = (0.5, 1.0, 2.0, 4.0)  # between looks whether an upload of unknown outcome was shared


class SlackChannel(PlatformChannel):
    """One or more workspaces."""

    name = NAME
    limits = ChannelLimits(
        text_limit=MAX_TEXT_CHARS, upload=MAX_FILE_BYTES, download=MAX_FILE_BYTES, fetches_links=True
    )

    def __init__(self, settings: SlackSettings) -> None:
        super().__init__(HttpClient("Slack", settings.proxy, settings.ca_file))
        self._settings = settings
        self.workspaces: list[Workspace] = []
        self.sockets: list[SocketMode] = []
        self._fetched: LatestDict[str, tuple[str, str]] = LatestDict(MAX_FETCHED)  # ref of a file → its name and type

    async def open(self) -> None:
        await super().open()
        apps: dict[Secret, list[Workspace]] = {}
        for tokens in self._settings.workspace_tokens:
            workspace = Workspace(tokens, self._settings, self._http, self._background)
            self.workspaces.append(workspace)
            apps.setdefault(tokens.app_token, []).append(workspace)
        for token, workspaces in apps.items():
            api = SlackApi("app_token", token, self._settings, self._http)
            self.sockets.append(SocketMode(api, workspaces, self._settings, self._background))
        for workspace in self.workspaces:  # also where another process listens
            self._background.start(workspace.flush_ends(), name="slack sessions")

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        async with asyncio.TaskGroup() as group:
            for socket in self.sockets:
                group.create_task(socket.run(receive, catch_up), name="slack socket")

    def _connection_readiness(self) -> Readiness:
        order = (Health.DOWN, Health.STARTING, Health.READY)
        worst = min(self.sockets, key=lambda socket: order.index(socket.readiness().health))
        state = worst.readiness()
        if state.detail and len(self.sockets) > 1:
            return replace(state, detail=f"{worst.workspace_names}: {state.detail}")
        return state

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        kind = EphemeralRenderer if posts.reply_handle else SlackRenderer
        renderer = kind(self._find_workspace, thread, posts, to, asker)
        return self._add_reply(ReplyWriter(renderer, posts, SlackReplyLimit(renderer)))

    def message_link(self, thread: Thread, message: str) -> str:
        """Return the address of a message; "" for a workspace to which this channel is not connected."""
        accounts = (workspace.account for workspace in self.workspaces)
        own = next((each for each in accounts if each and each.team_id == thread.workspace), None)
        return own.message_link(thread, message) if own else ""

    def begins_threads(self, chat: Thread) -> bool:
        """Always: `thread_ts` is the `ts` of any message (docs.slack.dev/messaging#threading)."""
        return True

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        workspace = await self._find_workspace(message.thread.workspace)
        quotes = [await workspace.with_quote_names(quote) for quote in message.quotes]
        before = await earlier_messages(workspace, message, earlier, since)
        viewed = await viewed_messages(workspace, message)
        return replace(message, text=await workspace.with_names(message.text), quotes=(*before, *viewed, *quotes))

    def spell_command(self, thread: Thread, command: str) -> str:
        """Slack's client takes "/stop" for itself. Outside of threads, the bot reads only its slash command."""
        return f"!{command}" if thread.topic or thread.chat.startswith("D") else f"{SLASH_COMMAND} {command}"

    async def set_title(self, thread: Thread, title: str) -> None:
        """Rename the thread's session. Slack refuses where the app is no agent, or the thread has no session."""
        if thread.topic:
            workspace = await self._find_workspace(thread.workspace)
            new = title[:MAX_SESSION_TITLE_CHARS]
            await workspace.api("agents.sessions.rename", **session_address(thread), title=new)

    async def show_home(self, thread: Thread, person: str, home: Home) -> None:
        """Publish the Home tab (docs.slack.dev/reference/methods/views.publish). Refused while the app has none."""
        workspace = await self._find_workspace(thread.workspace)
        await workspace.api("views.publish", user_id=person, view=home_view(home, thread.chat))

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the direct messages with a person (docs.slack.dev/reference/methods/conversations.open)."""
        workspace = await self._find_workspace(near.workspace)
        opened = await workspace.api("conversations.open", users=person)
        return Thread(NAME, near.workspace, str(opened["channel"]["id"]))

    async def is_gone(self, person: str) -> bool | None:
        """Return whether each workspace that knows the account has deactivated it; None if none knows it."""
        said = [await workspace.is_deactivated(person) for workspace in self.workspaces]
        known = [each for each in said if each is not None]
        return all(known) if known else None

    # ------------------------------------------------------------ files

    def _file_rules(self, thread: Thread) -> FileRules:
        return FileRules(MAX_FILE_BYTES, MAX_FILES_PER_MESSAGE)

    async def _upload(self, thread: Thread, file: OutgoingFile) -> Json:
        workspace = await self._find_workspace(thread.workspace)
        target = await workspace.api("files.getUploadURLExternal", filename=file.name, length=file.size)
        await workspace.api.upload(target["upload_url"], file.path)
        return {"id": str(target["file_id"]), "title": file.name}

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Show uploaded files in their thread, in one message, and return the id of the first.

        If the outcome is unknown, wait for its shares, which Slack adds some time after the call.
        """
        workspace = await self._find_workspace(thread.workspace)
        caption = f"{_(REPEAT_MARK) if post.is_repeat else ''} {joined_captions(post.files)}".strip()
        address: Json = {"channel_id": thread.chat} | ({"thread_ts": thread.topic} if thread.topic else {})
        comment: Json = {"initial_comment": caption_text(caption)} if caption else {}
        first = str(post.uploads[0]["id"])
        try:
            await workspace.api("files.completeUploadExternal", files=list(post.uploads), **address, **comment)
        except OutcomeUnknown as error:
            if not await self._find_posted(thread, first):
                raise TryLater(str(error)) from None
        return first

    def _handle_of(self, post: FilePost) -> str:
        return str(post.uploads[0]["id"])

    async def _find_posted(self, thread: Thread, handle: str) -> str:
        """Return the id of the first file where Slack shows it: it adds the shares some time after the call."""
        workspace = await self._find_workspace(thread.workspace)
        for seconds in SHARE_CHECK_SECONDS:
            if (await workspace.api("files.info", file=handle))["file"].get("shares"):
                return handle
            await asyncio.sleep(seconds)
        return ""

    def named(self, attachment: Attachment) -> Attachment:
        """Return the file as files.info had it: a message has only the id of one from a connected workspace.

        docs.slack.dev/apis/slack-connect: `file_access` is `check_file_info` there.
        """
        name, mime = self._fetched.get(attachment.ref, ("", ""))
        return replace(attachment, name=name or attachment.name, mime=mime or attachment.mime)

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        team_id, _, file_id = attachment.ref.partition("/")
        workspace = await self._find_workspace(team_id)
        try:
            file = (await workspace.api("files.info", file=file_id))["file"]
        except Refused as error:
            raise files.no_longer_available(f"Slack ({error})") from None
        self._fetched[attachment.ref] = str(file.get("name") or ""), str(file.get("mimetype") or "")
        url = file.get("url_private_download") or file.get("url_private")
        if not url:
            raise Refused("is not stored on Slack")
        return workspace.api.download(url, file.get("mimetype") or "")

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
