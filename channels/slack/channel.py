"""The Slack channel itself: workspaces, listening, replies, files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from weakref import WeakSet

import aiohttp

from agent.conversation import Attachment, Message, Secret, Thread
from channels.base import (
    NO_PAST,
    ChannelError,
    CommandInfo,
    Health,
    Limits,
    OutFile,
    Past,
    Posts,
    Readiness,
    Receive,
    Refused,
    Reply,
    TryLater,
    Unknown,
    first_post,
)
from channels.shared import file_limits, lifecycle
from channels.shared.rate_limit import Budget, Place, Priority, Rates
from channels.shared.reply_writer import Writer, post_once
from channels.shared.texts import REPEAT
from channels.slack import Settings
from channels.slack.api import Calls, Json, Rejected
from channels.slack.blocks import LIMIT, Part, plain
from channels.slack.events import NAME
from channels.slack.history import earlier
from channels.slack.manifest import NEEDED, SCOPES
from channels.slack.reply import Surface
from channels.slack.response_url import Response, Way
from channels.slack.socket_mode import Socket
from channels.slack.workspace import Team

SIZE = 1 << 30  # bytes of a file, in and out (slack.com/help/articles/201330736)
MEND = "add the scopes (`fawn slack manifest` has all of them) and install the app again"
BURST = 3  # calls at once in a channel or a stream


@dataclass(frozen=True, slots=True)
class Lane(Place):
    """The place of one reply. When Slack asks it to wait, its stream waits; its final is another method's call, and
    `Calls` knows whether that may be made."""

    shut: list[float] = field(default_factory=lambda: [0.0])  # until when, in the loop's time

    async def take(self, priority: Priority) -> None:
        if priority is not Priority.FINAL:
            await asyncio.sleep(max(0.0, self.shut[0] - asyncio.get_running_loop().time()))
        await self.budget.take(self.chat, priority, group=self.group)

    def close(self, seconds: float) -> None:
        self.shut[0] = asyncio.get_running_loop().time() + seconds


class Slack:
    """One or more workspaces."""

    name = NAME
    limits = Limits(text=LIMIT, upload=SIZE, download=SIZE)
    window = 0.2

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._teams: list[Team] = []
        self._sockets: list[Socket] = []
        self._ways: dict[str, Way] = {}  # how interactions can be answered, by the id of their message
        # Tiers count a whole workspace: 429s are waited out per method (Calls), only what one place may have is paced.
        self._channels = Budget(Rates(settings.per_channel, BURST, overall=5000))
        self._streams = Budget(Rates(settings.per_stream, BURST, overall=5000))
        self._writers: WeakSet[Writer[Part]] = WeakSet()

    async def open(self) -> None:
        """Get ready to make calls. Raises Refused when the settings do not allow it."""
        kind, _, _ = self._settings.proxy.partition("://")
        if kind not in ("", "http", "https"):
            raise Refused(f"a proxy of kind {kind[:10]} cannot be used: `proxy` takes http://… or https://…")
        trust = await lifecycle.trust(self._settings.ca_file)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=30.0)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15.0, ssl=trust)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        apps: dict[Secret, list[Team]] = {}
        for pair in self._settings.pairs:
            team = Team(pair, self._settings, self._session, trust)
            self._teams.append(team)
            apps.setdefault(pair.app_token, []).append(team)
        for token, members in apps.items():
            calls = Calls("app_token", token, self._settings, self._session, trust)
            self._sockets.append(Socket(calls, members, self._settings, self._ways))

    async def close(self) -> None:
        """Stop every reply and hang up."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        if self._session:
            await self._session.close()

    async def look(self) -> str:
        """The accounts, and whether their sockets may be opened. Raises Refused with what to do."""
        try:
            return await self._look()
        except (Refused, Rejected) as error:
            raise Refused(f"{error}.") from None
        except ChannelError as error:
            raise Refused(f"{error}. Check base_url, proxy and the network.") from None

    async def _look(self) -> str:
        found = []
        for team in self._teams:
            me, granted = await team.hello(), await team.calls.scopes()
            if granted and (missing := sorted(NEEDED - granted)):
                raise Refused(f"In {me.workspace} the app lacks {', '.join(missing)}: {MEND}")
            less = f" without {', '.join(lacking)}" if granted and (lacking := sorted(SCOPES.keys() - granted)) else ""
            found.append(f"@{me.name} in {me.workspace} ({me.team}){less}")
        for socket in self._sockets:
            await socket.look()
        return f"connected as {' and '.join(found)}"

    async def listen(self, receive: Receive, past: Past = NO_PAST) -> None:
        async with asyncio.TaskGroup() as group:
            for team in self._teams:
                group.create_task(team.tidy(), name="slack sessions")
            for socket in self._sockets:
                group.create_task(socket.run(receive, past), name="slack socket")

    def readiness(self) -> Readiness:
        """That of the worst socket."""
        order = (Health.DOWN, Health.STARTING, Health.READY)
        worst = min(self._sockets, key=lambda socket: order.index(socket.readiness().health))
        state = worst.readiness()
        if state.detail and len(self._sockets) > 1:
            return replace(state, detail=f"{worst.speaks_for}: {state.detail}")
        return state

    def reply(self, thread: Thread, posts: Posts, *, to: str = "", asker: str = "") -> Reply:
        way = self._ways.get(to)
        if way and time.monotonic() < way.until:
            surface: Surface = Response(self._find, thread, posts, to, asker, way=way)
        else:
            surface = Surface(self._find, thread, posts, to, asker)
        writer = Writer(surface, posts, self._place(thread, streams=bool(asker)))
        self._writers.add(writer)
        return writer

    async def enrich(self, message: Message, most: int) -> Message:
        workspace = message.thread.workspace
        team = await self._find(workspace)
        quotes = [await team.named(quote, workspace) for quote in message.quotes]
        before = await earlier(team, message, most)
        return replace(message, text=await team.readable(message.text, workspace), quotes=(*before, *quotes))

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Nothing to register: the manifest has the one native command, which takes all of them as its words."""

    # ------------------------------------------------------------ files

    async def send_file(self, thread: Thread, file: OutFile, posts: Posts) -> None:
        known = first_post(posts)
        if known and known.id:
            return
        file_limits.check(file, SIZE, "Slack")
        team = await self._find(thread.workspace)
        place = self._place(thread)
        await place.take(Priority.FINAL)
        try:
            got = await team.calls("files.getUploadURLExternal", filename=file.name, length=file.size)
            await team.calls.upload(got["upload_url"], file.path)
        except Unknown as error:  # nobody sees a file before it is completed
            raise TryLater(str(error)) from None
        caption = " ".join(piece for piece in (REPEAT if known else "", file.caption) if piece)
        await post_once(posts, lambda: self._complete(team, thread, str(got["file_id"]), file.name, caption))

    async def _complete(self, team: Team, thread: Thread, file_id: str, name: str, caption: str) -> str:
        """Show an uploaded file in its thread; gives its id. With no answer, the file tells whether it is there."""
        where: Json = {"channel_id": thread.chat} | ({"thread_ts": thread.topic} if thread.topic else {})
        said = {"initial_comment": plain(caption)} if caption else {}
        entry = {"id": file_id, "title": name}
        try:
            await team.calls("files.completeUploadExternal", files=[entry], **where, **said)
        except Unknown as error:
            if not (await team.calls("files.info", file=file_id))["file"].get("shares"):
                raise TryLater(str(error)) from None
        return file_id

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.within(SIZE, attachment, self._download(attachment))

    async def _download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        workspace, _, file_id = attachment.ref.partition("/")
        team = await self._find(workspace)
        try:
            file = (await team.calls("files.info", file=file_id))["file"]
        except Unknown as error:
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

    async def _find(self, workspace: str) -> Team:
        """The workspace of that name. Raises ChannelError."""
        trouble: ChannelError = Refused(f"no token of the configuration belongs to the workspace {workspace}")
        for team in sorted(self._teams, key=lambda team: team.me is None):
            try:
                if (await team.hello()).team == workspace:
                    return team
            except ChannelError as error:  # perhaps it is another one's
                trouble = error
        raise trouble

    def _place(self, thread: Thread, *, streams: bool = False) -> Place:
        """A stream has its own pace; messages and their changes share that of their channel."""
        where = f"{thread.workspace}/{thread.chat}"
        if streams and thread.topic:
            return Lane(self._streams, f"{where}/{thread.topic}", idempotent=True)
        return Lane(self._channels, where, idempotent=True)
