"""The fake Discord's gateway: resumable sessions, compression, heartbeats, and faults."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import zstandard
from aiohttp import WSMsgType, web

from tests.fakes.discord_world import BOT, DM, GUILD, TOKEN, World
from tests.fakes.server import Json

CONTENT = 1 << 15  # the Message Content intent
WANTED = {  # event → intents of which one must be asked for
    "MESSAGE_CREATE": 1 << 9 | 1 << 12,
    "MESSAGE_UPDATE": 1 << 9 | 1 << 12,
    "MESSAGE_DELETE": 1 << 9 | 1 << 12,
    "MESSAGE_REACTION_ADD": 1 << 10 | 1 << 13,
    "MESSAGE_REACTION_REMOVE": 1 << 10 | 1 << 13,
    "TYPING_START": 1 << 11 | 1 << 14,
}


@dataclass(slots=True)
class Session:
    """The state with which RESUME continues."""

    id: str
    intents: int
    seq: int = 0
    log: deque[Json] = field(default_factory=lambda: deque(maxlen=5000))


@dataclass(slots=True)
class Connection:
    socket: web.WebSocketResponse
    request: web.Request
    pack: Callable[[bytes], bytes] | None
    session: Session | None = None
    deaf: bool = False
    queue: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)


def packer(kind: str | None) -> Callable[[bytes], bytes] | None:
    """One compressed stream for the whole connection."""
    if kind == "zlib-stream":
        flate = zlib.compressobj()
        return lambda data: flate.compress(data) + flate.flush(zlib.Z_SYNC_FLUSH)
    if kind == "zstd-stream":
        stream = zstandard.ZstdCompressor().compressobj()
        return lambda data: stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return None


class Gateway(World):
    """Every session gets every event that its intents include."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.sessions: dict[str, Session] = {}
        self.heartbeat = 41.25  # seconds
        self.token = TOKEN
        self.gateway_down = False
        self.identifies = 0
        self.resumes = 0
        self._numbers = itertools.count(1)
        super().__init__()

    @property
    def gateway_url(self) -> str:
        return self.base.replace("http", "ws", 1) + "/"

    def push(self, event: str, data: Json) -> None:
        """Send to every session."""
        for session in self.sessions.values():
            if event not in WANTED or session.intents & WANTED[event]:
                self._dispatch(session, event, self._stripped(session, event, data))

    def _stripped(self, session: Session, event: str, data: Json) -> Json:
        """Remove the content if the bot may not read it."""
        if event not in ("MESSAGE_CREATE", "MESSAGE_UPDATE") or session.intents & CONTENT:
            return data
        room = self.rooms[data["channel_id"]]
        if room.type == DM or data["author"]["id"] == BOT or any(user["id"] == BOT for user in data["mentions"]):
            return data
        return data | {"content": "", "attachments": [], "embeds": [], "components": []}

    def _dispatch(self, session: Session, event: str, data: Json) -> None:
        session.seq += 1
        frame = {"op": 0, "t": event, "s": session.seq, "d": data}
        session.log.append(orjson.loads(orjson.dumps(frame)))  # as it is now
        for connection in self.connections:
            if connection.session is session:
                self._send(connection, frame)

    def _send(self, connection: Connection, frame: Json) -> None:
        if not connection.deaf:
            connection.queue.put_nowait(orjson.dumps(frame))

    # ------------------------------------------------------------ a connection

    async def serve_gateway(self, request: web.Request) -> web.StreamResponse:
        if self.gateway_down:
            return web.Response(status=503)
        socket = web.WebSocketResponse(max_msg_size=1 << 16)
        await socket.prepare(request)
        connection = Connection(socket, request, packer(request.query.get("compress")))
        self.connections.append(connection)
        sender = asyncio.create_task(self._write(connection))
        self._send(connection, frame(10, {"heartbeat_interval": int(self.heartbeat * 1000), "_trace": []}))
        try:
            async for message in socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):  # some clients send JSON in binary frames
                    told = orjson.loads(message.data)
                    await self._hear(connection, told["op"], told.get("d"))
        finally:
            sender.cancel()
            self.connections.remove(connection)
        return socket

    async def _write(self, connection: Connection) -> None:
        while True:
            data = await connection.queue.get()
            if connection.pack:
                await connection.socket.send_bytes(connection.pack(data))
            else:
                await connection.socket.send_str(data.decode())

    async def _hear(self, connection: Connection, op: int, data: Json) -> None:
        match op:
            case 1:
                self._send(connection, frame(11, None))
            case 2:
                self.identifies += 1
                if data["token"] != self.token:
                    await connection.socket.close(code=4004, message=b"Authentication failed.")
                elif data["intents"] & CONTENT and not self.content_intent:
                    await connection.socket.close(code=4014, message=b"Disallowed intent(s).")
                else:
                    self._begin(connection, data["intents"])
            case 6:
                self.resumes += 1
                session = self.sessions.get(data["session_id"])
                if session is None:
                    self._send(connection, frame(9, False))
                    return
                connection.session = session
                for missed in [kept for kept in session.log if kept["s"] > (data["seq"] or 0)]:
                    self._send(connection, missed)
                self._dispatch(session, "RESUMED", {"_trace": []})

    def _begin(self, connection: Connection, intents: int) -> None:
        session = connection.session = Session(f"session{next(self._numbers)}", intents)
        self.sessions[session.id] = session
        user = self.people[BOT] | {"mfa_enabled": False, "verified": True, "email": None, "flags": 0}
        ready = {"v": 10, "user": user, "session_id": session.id, "resume_gateway_url": self.gateway_url}
        ready |= {"guilds": [{"id": guild, "unavailable": True} for guild in self.guilds], "session_type": "normal"}
        ready |= {"application": {"id": BOT, "flags": self.application_flags}, "private_channels": [], "_trace": []}
        self._dispatch(session, "READY", ready)
        for guild in self.guilds:
            self._dispatch(session, "GUILD_CREATE", self.guild_json(guild))

    @property
    def application_flags(self) -> int:
        return 1 << 19 if self.content_intent else 0  # GATEWAY_MESSAGE_CONTENT_LIMITED

    # ------------------------------------------------------------ faults

    def abort(self) -> None:
        """Break every connection."""
        for connection in list(self.connections):
            if connection.request.transport:
                connection.request.transport.abort()

    def deafen(self) -> None:
        """Keep connections open, but send nothing over them."""
        for connection in self.connections:
            connection.deaf = True

    def forget(self) -> None:
        """Make all sessions impossible to resume."""
        self.sessions.clear()

    def order(self, op: int, data: object = None) -> None:
        """Send op 7 (reconnect) or op 9 (invalid session; true: it may be resumed)."""
        for connection in self.connections:
            self._send(connection, frame(op, data))

    async def hang_up(self, code: int) -> None:
        """Close every connection with a code."""
        for connection in list(self.connections):
            await connection.socket.close(code=code)

    def poison(self, event: str = "MESSAGE_CREATE", guild: str = GUILD) -> None:
        """Send an event that no client can parse."""
        for session in self.sessions.values():
            self._dispatch(session, event, {"id": "77777", "guild_id": guild, "author": "nobody", "roles": 7})


def frame(op: int, data: object) -> Json:
    return {"op": op, "d": data, "s": None, "t": None}
