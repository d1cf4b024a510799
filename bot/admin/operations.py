"""Operations of an operator, over a unix socket in data_dir: one JSON line in, one out.

The same operations run in the service (through the socket) or, when no service runs, on its database directly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from agent.blocks import Final
from agent.messages import Thread
from agent.stored_json import Damaged
from bot import access, outbox
from bot.admin.backup import back_up
from bot.storage import conversations
from bot.storage.database import Database, Execute
from sandbox.disk.folders import ConversationFolders

log = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
Answer = dict[str, Any]
Operation = Callable[..., Awaitable[Answer]]


class NotRunning(Exception):
    """No service runs on this data_dir."""


class NotFound(Exception):
    """There is no such row, code or person."""


class Operations:
    """What an operator can do to a store, with the service running or not. `changed` wakes the running parts."""

    def __init__(
        self, store: Database, data_dir: Path, folders: ConversationFolders, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._data_dir = data_dir
        self._folders = folders
        self._changed = changed
        self._backing_up = asyncio.Lock()

    def table(self) -> Mapping[str, Operation]:
        """Name → operation."""
        return {
            "dead.list": self.dead_list,
            "dead.requeue": self.dead_requeue,
            "dead.drop": self.dead_drop,
            "pair.list": self.pair_list,
            "pair.accept": self.pair_accept,
            "pair.revoke": self.pair_revoke,
            "backup": self.backup,
        }

    async def dead_list(self) -> Answer:
        """Replies that a platform refused, and events that could not be read."""
        return {"dead": await self._store.run(_dead_letters)}

    async def dead_requeue(self, id: str) -> Answer:
        """Deliver a dead reply again."""
        return await self._dead_set(id, outbox.requeue)

    async def dead_drop(self, id: str) -> Answer:
        """Forget a dead letter."""
        if id.startswith("in"):
            sql = "UPDATE inbox SET state=2 WHERE id=:id AND state=3 RETURNING id"
        else:
            sql = "UPDATE outbox SET state=4 WHERE id=:id AND state=3 RETURNING id"
        return await self._dead_set(id.removeprefix("in"), lambda execute, row: execute(sql, {"id": row}))

    async def _dead_set(self, id: str, change: Callable[[Execute, int], object]) -> Answer:
        if not id.isdigit() or not await self._store.run(lambda execute: change(execute, int(id))):
            raise NotFound(f"there is no dead letter {id}: see `fawn dead list`")
        self._changed()
        return {"id": id}

    async def pair_list(self) -> Answer:
        """Who was let in by pairing, and whose codes wait."""
        rows = await self._store.run(lambda execute: access.list_paired(execute, time.time()))
        return {"people": [dict(row) for row in rows]}

    async def pair_accept(self, code: str) -> Answer:
        """Let the person with this code in, and tell them."""

        def work(execute: Execute) -> Answer:
            now = time.time()
            paired = access.accept_pairing(execute, code, now)
            if paired is None:
                raise NotFound("this code is unknown, used or older than an hour")
            thread = Thread.parse(paired.thread)
            conversations.enqueue_notice(
                execute, thread, "You may talk to me now. What can I do for you?", key=f"paired:{code}:{now}", now=now
            )
            return {"channel": paired.channel, "person": paired.person, "name": paired.name}

        answer = await self._store.run(work)
        self._changed()
        return answer

    async def pair_revoke(self, channel: str, person: str) -> Answer:
        """Take that permission back."""
        if not await self._store.run(lambda execute: access.revoke_pairing(execute, channel, person)):
            raise NotFound(f"nobody with the id {person} was let in on {channel}: see `fawn pair list`")
        return {"channel": channel, "person": person}

    async def backup(self, file: str) -> Answer:
        """Write databases (consistent copies) and threads' folders into a .tar.gz."""
        async with self._backing_up:
            return await back_up(self._data_dir, self._folders, Path(file))


def _dead_letters(execute: Execute) -> list[dict[str, Any]]:
    out = [
        {
            "id": str(row["id"]),
            "kind": row["kind"],
            "thread": row["thread"],
            "created": row["created"],
            "error": row["error"],
            "text": _words(row["raw"])[:200] if row["kind"] != "file" else "",
        }
        for row in execute("SELECT *, CAST(payload AS BLOB) AS raw FROM outbox WHERE state=3 ORDER BY id", {})
    ]
    return out + [
        {
            "id": f"in{row['id']}",
            "kind": "unreadable event",
            "thread": "",
            "created": row["received"],
            "error": row["error"],
            "text": row["raw"].decode(errors="replace")[:200],
        }
        for row in execute("SELECT *, CAST(payload AS BLOB) AS raw FROM inbox WHERE state=3 ORDER BY id", {})
    ]


def _words(raw: bytes) -> str:
    try:
        return Final.load(raw).text
    except Damaged:
        return raw.decode(errors="replace")


# ------------------------------------------------------------ the socket


@asynccontextmanager
async def serve_control_socket(data_dir: Path, table: Mapping[str, Operation]) -> AsyncIterator[None]:
    """Answer operations on the socket while the context is open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = orjson.loads(await reader.readline())
            writer.write(orjson.dumps(await _run_operation(table, request)) + b"\n")
            await writer.drain()
        except (ConnectionError, orjson.JSONDecodeError) as error:
            log.warning("control.broken reason=%s", error)
        finally:
            writer.close()

    (data_dir / SOCKET_NAME).unlink(missing_ok=True)  # a dead service's; the lock says that none is alive
    with _Reachable(data_dir) as path:
        server = await asyncio.start_unix_server(serve, path)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
    try:
        yield
    finally:
        server.close()
        (data_dir / SOCKET_NAME).unlink(missing_ok=True)


async def _run_operation(table: Mapping[str, Operation], request: dict[str, Any]) -> Answer:
    operation = table.get(request.get("operation", ""))
    if operation is None:
        return {"error": f"unknown operation {request.get('operation')!r}"}
    try:
        return await operation(**request.get("arguments", {}))
    except NotFound as error:
        return {"error": str(error)}
    except Exception as error:  # the boundary of one request: the operator sees it, the service goes on
        log.exception("control.fault operation=%s", request.get("operation"))
        return {"error": f"{type(error).__name__}: {error}"}


async def call_service(data_dir: Path, operation: str, arguments: Mapping[str, str]) -> Answer:
    """Ask the running service. Raises NotRunning."""
    with _Reachable(data_dir) as path:
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(NotRunning.__doc__) from None
    writer.write(orjson.dumps({"operation": operation, "arguments": dict(arguments)}) + b"\n")
    await writer.drain()
    answer: Answer = orjson.loads(await reader.read())
    writer.close()
    return answer


class _Reachable:
    """A path to the socket that fits into a socket address (108 bytes), however long data_dir is."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def __enter__(self) -> str:
        try:
            self._fd = os.open(self._data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotRunning(NotRunning.__doc__) from None
        return f"/proc/self/fd/{self._fd}/{SOCKET_NAME}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
