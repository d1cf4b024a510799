"""Operations of an operator, over a unix socket in data_dir: one JSON line each for the request and the answer.

The same operations run in the service (through the socket) or, when no service runs, on its database directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import inspect
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from agent.blocks import Final, spell_commands
from agent.stored_json import Damaged
from bot.admin.lookups import lookups
from bot.api import keys
from bot.api.page import sessions
from bot.privacy.command import enqueue_forgetting
from bot.service.backup import back_up
from bot.service.dead_letters import drop, requeue
from bot.service.stored_secrets import CHANNEL
from bot.storage import api_keys, audit, channel_state, conversations, dead_letters, people, person_roles, transcripts
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Database, Execute
from bot.storage.dead_letters import DeadLetter
from bot.storage.forgetting import PersonKey
from bot.storage.people import PersonRow
from bot.storage.states import OutboxKind
from bot.team import pairing
from bot.team.offboarding import offboard_by_command
from catalogue import N_, _, current_language, default_language, list_items, match_language, use_language
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.sealing import Sealer

log = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
NO_SERVICE = N_("no Fawn is running on {data_dir}: check `data_dir` or --config")
EXPORT_PAGE_ENTRIES = 1000
NAMED_THREADS = 5
Answer = dict[str, Any]
Operation = Callable[..., Awaitable[Answer]]
AttachConsole = Callable[[dict[str, Any], asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MAX_COMMAND_CHARS = 60  # of a name in the audit
ATTACH = "console"  # an operation that keeps the connection
LINE_BYTES = 64 << 20  # of a line from or to a console
MAX_ODD_CHARS = 100  # of an odd request, in the answer


class NotRunning(Exception):
    """No service runs on this data_dir."""


class NotFound(Exception):
    """The row, code or person does not exist."""


class OddRequest(Exception):
    """A request that no Fawn sends; the text says what is wrong."""


class Operations:
    """What an operator can do, with the service running or not."""

    def __init__(
        self,
        store: Database,
        data_dir: Path,
        folders: ConversationFolders,
        custom_skills: Callable[[], Path],
        http_address: Callable[[], str] = str,
        sealer: Callable[[], Sealer] = Sealer,
    ) -> None:
        self._store = store
        self._data_dir = data_dir
        self._folders = folders
        self._custom_skills = custom_skills
        self._http_address = http_address  # of the listener; "" where nothing listens
        self._sealer = sealer
        self._backing_up = asyncio.Lock()

    def table(self) -> Mapping[str, Operation]:
        """Return name → operation."""
        return {
            "note": self.note,
            "drill.note": self.drill_note,
            "dead.list": self.dead_list,
            "dead.requeue": self.dead_requeue,
            "dead.drop": self.dead_drop,
            "pair.list": self.pair_list,
            "pair.accept": self.pair_accept,
            "pair.decline": self.pair_decline,
            "pair.revoke": self.pair_revoke,
            "forget": self.forget,
            "offboard": self.offboard,
            "key.add": self.key_add,
            "key.list": self.key_list,
            "key.revoke": self.key_revoke,
            "web.link": self.web_link,
            "channel.keep": self.channel_keep,
            "backup": self.backup,
            "export": self.export,
            "skills.note": self.skills_note,
            **lookups(self._store),
        }

    async def dead_list(self) -> Answer:
        """List deliveries that were given up, and events that cannot be read."""
        return {"dead": [_describe_dead(row) for row in await self._store.run(dead_letters.list_dead)]}

    async def dead_requeue(self, id: str) -> Answer:
        """Deliver a dead reply again."""
        return await self._change_dead(id, requeue)

    async def dead_drop(self, id: str) -> Answer:
        """Forget a dead letter."""
        return await self._change_dead(id, drop)

    async def _change_dead(self, id: str, change: Callable[..., bool]) -> Answer:
        if not await self._store.run(partial(change, id=id, what=audit.command_line())):
            raise NotFound(_("there is no dead letter {id}: see `fawn dead list`", id=id))
        return {"id": id}

    async def pair_list(self) -> Answer:
        """List the people whom pairing allowed, and the codes that are good."""
        rows = await self._store.run(lambda execute: people.list_paired(execute, time.time()))
        return {"people": [_describe_person(row) for row in rows]}

    async def pair_accept(self, code: str, operator: bool = False, word: str = "") -> Answer:
        """Allow the person with this code, notify them, and answer what they wrote, unless it is `word`."""

        def work(execute: Execute) -> PersonRow | None:
            paired = pairing.accept(execute, code, time.time(), operator=operator, word=word)
            return paired.person if paired else None

        return await self._decide_pairing(work)

    async def pair_decline(self, code: str) -> Answer:
        """Decline the person with this code, and tell them once."""
        return await self._decide_pairing(lambda execute: pairing.decline(execute, code, time.time()))

    async def _decide_pairing(self, decide: Callable[[Execute], PersonRow | None]) -> Answer:
        person = await self._store.run(decide)
        if person is None:
            raise NotFound(_("this code is unknown, used or older than an hour"))
        return _describe_person(person)

    async def forget(self, channel: str, person: str) -> Answer:
        """Have the service forget a person, at once or after its next start."""
        await self._store.run(partial(enqueue_forgetting, person=PersonKey(channel, person)))
        return {"channel": channel, "person": person}

    async def offboard(self, channel: str, person: str, to: str) -> Answer:
        """End what a person has who is gone, and hand their schedules over to the person `to`, unless that is ""."""
        answer = await self._store.run(partial(offboard_by_command, channel=channel, person=person, to=to))
        if isinstance(answer, str):
            subject, what = audit.person_name(channel, person), audit.command_line()
            event = AuditEvent(AuditKind.PERSON_OFFBOARDED, subject=subject, what=what, result="refused")
            await self._store.run(partial(audit.record, event=event))
            raise NotFound(answer)
        return answer

    async def key_add(self, name: str, person: str, scopes: str, expires: str) -> Answer:
        """Make a key for a person, `CHANNEL/ID` or `CHANNEL/NAME`. The answer is the only place that has it."""
        try:
            key, row = await self._store.run(
                partial(keys.make_key, name=name, person=person, scopes=scopes, expires=expires)
            )
        except keys.BadKey as error:
            raise NotFound(str(error)) from error
        return keys.describe_key(row) | {"key": key}

    async def key_list(self) -> Answer:
        """List the keys, without what they are."""
        return {"keys": [*map(keys.describe_key, await self._store.run(api_keys.list_keys))]}

    async def key_revoke(self, name: str) -> Answer:
        """End a key at once."""
        if row := await self._store.run(partial(keys.end_key, name=name)):
            return keys.describe_key(row)
        raise NotFound(_("there is no key {name}: see `fawn key list`", name=name))

    async def web_link(self, person: str) -> Answer:
        """Make a link with which a person, `CHANNEL/ID` or `CHANNEL/NAME`, signs in to the page once."""
        if not (address := self._http_address()):
            raise NotFound(_("no Fawn serves the page here: set `http.listen`, and run it"))
        try:
            what: dict[str, int | str] = audit.command_line()
            token, channel, id = await self._store.run(partial(sessions.link_for, named=person, what=what))
        except keys.BadKey as error:
            raise NotFound(str(error)) from error
        return {"link": sessions.link_address(address, token), "channel": channel, "person": id}

    async def pair_revoke(self, channel: str, person: str) -> Answer:
        """Revoke what pairing allowed, and the roles that were given with `/access`."""

        def revoke(execute: Execute) -> list[str] | None:
            revoked = people.revoke_pairing(execute, channel, person)
            roles = person_roles.roles_of_person(execute, channel, person)
            for row in roles:
                person_roles.delete_role(execute, channel, row.subject)
            if not (revoked or roles):
                return None
            subject, what = audit.person_name(channel, person), audit.command_line() | {"roles": len(roles)}
            audit.record(execute, AuditEvent(AuditKind.PAIRING_REVOKED, subject=subject, what=what))
            return [row.role for row in roles]

        roles = await self._store.run(revoke)
        if roles is None:
            raise NotFound(
                _(
                    "nobody with the id {person} was let in on {channel}: see `fawn pair list`",
                    person=person,
                    channel=channel,
                )
            )
        return {"channel": channel, "person": person, "roles": roles}

    async def channel_keep(self, channel: str, kept: dict[str, str]) -> Answer:
        """Keep for a channel what the set-up got for it, such as a login, sealed as everything that channels keep."""
        sealer = self._sealer()
        if not all(isinstance(each, str) for each in kept.values()):
            raise OddRequest("`kept` is of the wrong type: it is texts by name")
        sealed = {name: sealer.seal(text, CHANNEL) for name, text in kept.items()}
        event = AuditEvent(AuditKind.COMMAND, channel=channel, what=audit.command_line() | {"name": "channel.keep"})

        def keep(execute: Execute) -> None:
            channel_state.write_state(execute, channel, sealed)
            audit.record(execute, event)

        await self._store.run(keep)
        return {"channel": channel, "kept": sorted(kept)}

    async def backup(self, file: str) -> Answer:
        """Write consistent copies of the databases, and the folders of conversations and skills, into a .tar.gz."""
        async with self._backing_up:
            written = await back_up(self._data_dir, self._folders, self._custom_skills(), Path(file), self._sealer())
        event = AuditEvent(AuditKind.BACKUP, what=audit.command_line() | {"bytes": written["bytes"]})
        await self._store.run(partial(audit.record, event=event))
        return written

    async def note(self, command: str) -> Answer:
        """Record that a user of this machine gave a command that reads or changes what is not theirs alone."""
        event = AuditEvent(AuditKind.COMMAND, what=audit.command_line() | {"name": command[:MAX_COMMAND_CHARS]})
        await self._store.run(partial(audit.record, event=event))
        return {}

    async def drill_note(self, figures: dict[str, int | str], passed: bool) -> Answer:
        """Record how a drill of the command line went."""
        known = {name[:MAX_COMMAND_CHARS]: value for name, value in figures.items() if type(value) is int}
        left_out = str(figures.get("left_out", ""))[:MAX_COMMAND_CHARS]
        what = audit.command_line() | known | {"left_out": left_out}
        event = AuditEvent(AuditKind.DRILL, what=what, result="ok" if passed else "failed")
        await self._store.run(partial(audit.record, event=event))
        return {}

    async def skills_note(self, action: str, skill: str, result: str) -> Answer:
        """Record what `fawn skills` did: it changes files."""
        what = audit.command_line() | {"action": action, "skill": skill}
        event = AuditEvent(AuditKind.SKILL, what=what, result=result)
        await self._store.run(partial(audit.record, event=event))
        return {}

    async def export(self, thread: str, after: int = 0) -> Answer:
        """Return the entries of a thread's transcript that follow the id `after`. `thread` may be its beginning."""

        def work(execute: Execute) -> Answer:
            address = _resolve_thread(execute, thread)
            entries = transcripts.read_thread(execute, address, after, EXPORT_PAGE_ENTRIES)
            return {
                "thread": address,
                "entries": [asdict(entry) for entry in transcripts.with_feedback(execute, entries)],
            }

        return await self._store.run(work)


def _resolve_thread(execute: Execute, wanted: str) -> str:
    """Return the only thread that begins with `wanted`. Raises NotFound, which names others."""
    found = conversations.list_threads(execute, wanted)
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if found:
        some = list_items(found[:NAMED_THREADS])
        raise NotFound(_("{n} threads begin with {wanted}: {some}", n=len(found), wanted=wanted, some=some))
    near = difflib.get_close_matches(wanted, conversations.list_threads(execute), NAMED_THREADS, 0.0)
    if near:
        raise NotFound(_("no thread begins with {wanted}; the nearest: {some}", wanted=wanted, some=list_items(near)))
    raise NotFound(_("no thread begins with {wanted}", wanted=wanted))


def _describe_person(row: PersonRow) -> Answer:
    """Return a person for the terminal; `words` are what they wrote alone, such as `fawn setup` asks for."""
    return {
        "channel": row.channel,
        "person": row.person,
        "name": pairing.readable_name(row),
        "allowed": row.allowed,
        "operator": bool(row.operator),
        "code": row.code,
        "words": pairing.kept_words(row),
    }


def _describe_dead(row: DeadLetter) -> Answer:
    text = row.raw.decode(errors="replace")
    if row.kind:
        with contextlib.suppress(Damaged):
            text = spell_commands(Final.load(row.raw).text, "/{}".format)
    return {
        "id": row.id,
        "kind": row.kind or _("unreadable event"),
        "thread": row.thread,
        "created": row.created,
        "error": row.error,
        "text": "" if row.kind == OutboxKind.FILE else text[:200],
    }


# ------------------------------------------------------------ the socket


@asynccontextmanager
async def serve_control_socket(
    data_dir: Path, table: Mapping[str, Operation], attach_console: AttachConsole
) -> AsyncIterator[None]:
    """Answer operations on the socket while the context is open. A console that attaches keeps its connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer | None:
        request = await _read_request(reader)
        audit.use_os_user(_peer_of(writer))
        if request["operation"] != ATTACH:
            return await _run_operation(table, request)
        hello = _check_console(request["arguments"]) | {"language": request["language"]}
        await attach_console(hello, reader, writer)
        return None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                found = await answer(reader, writer)
            except OddRequest as error:
                found = {"error": str(error)}
            if found is not None:
                writer.write(_dump_answer(found) + b"\n")
                await writer.drain()
        except ConnectionError as error:
            log.warning("control.broken reason=%s", error)
        except Exception:  # the boundary of one connection: the others go on
            log.exception("control.connection_fault")
        finally:
            writer.close()

    (data_dir / SOCKET_NAME).unlink(missing_ok=True)  # of a dead service: the lock guarantees that none is alive
    with _Reachable(data_dir) as path:
        server = await asyncio.start_unix_server(serve, path, limit=LINE_BYTES)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
    try:
        yield
    finally:
        server.close()
        (data_dir / SOCKET_NAME).unlink(missing_ok=True)


def _peer_of(writer: asyncio.StreamWriter) -> int:
    """Return the id of the user at the other end, as the kernel knows it (unix(7), SO_PEERCRED)."""
    size = struct.calcsize("3i")
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", raw)[1])


async def _read_request(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the operation (a name), its arguments (by name) and the language. Raises OddRequest."""
    try:
        request = orjson.loads(await reader.readline())
    except (orjson.JSONDecodeError, ValueError) as error:  # ValueError: longer than LINE_BYTES
        raise OddRequest(f"a request is one line of JSON: {error}") from error
    if not isinstance(request, dict):
        raise OddRequest("a request is an object with `operation` and `arguments`")
    found = {"operation": "", "arguments": {}, "language": ""} | request
    for name, kind in (("operation", str), ("arguments", dict), ("language", str)):
        if not isinstance(found[name], kind):
            raise OddRequest(f"`{name}` of a request is of the wrong type")
    return found


def _check_console(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return how a console presents itself. Raises OddRequest."""
    kinds = {"person": str, "topic": str, "interactive": bool}
    known = all(name in kinds and isinstance(value, kinds[name]) for name, value in arguments.items())
    if not known or not arguments.get("person"):
        raise OddRequest("a console gives its `person`, and may give `topic` and `interactive`")
    return arguments


async def _run_operation(table: Mapping[str, Operation], request: dict[str, Any]) -> Answer:
    operation, arguments = table.get(request["operation"]), request["arguments"]
    if operation is None:
        raise OddRequest(f"unknown operation: {request['operation'][:MAX_ODD_CHARS]}")  # of another version
    _check_arguments(operation, arguments)
    try:
        with use_language(match_language(request["language"]) or default_language()):
            return await operation(**arguments)
    except NotFound as error:
        return {"error": str(error)}
    except Exception as error:  # the boundary of one request: the operator sees the error
        log.exception("control.fault operation=%s", request["operation"])
        return {"error": f"{type(error).__name__}: {error}"}


def _check_arguments(operation: Operation, arguments: dict[str, Any]) -> None:
    """Compare the arguments with the signature of the operation. Raises OddRequest."""
    signature = inspect.signature(operation)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise OddRequest(str(error)[:MAX_ODD_CHARS]) from error
    for name, value in arguments.items():
        if type(value).__name__ != (wanted := signature.parameters[name].annotation.partition("[")[0]):
            raise OddRequest(f"`{name}` is of the wrong type: it is {wanted}")


def _dump_answer(answer: Answer) -> bytes:
    try:
        return orjson.dumps(answer)
    except TypeError as error:  # a lone surrogate or a huge number in what is stored
        return orjson.dumps({"error": f"{type(error).__name__}: {error}"})


async def call_service(data_dir: Path, operation: str, arguments: Mapping[str, Any]) -> Answer:
    """Ask the running service. Raises NotRunning."""
    reader, writer = await open_connection(data_dir, operation, arguments)
    answer: Answer = orjson.loads(await reader.read())
    writer.close()
    return answer


async def open_connection(
    data_dir: Path, operation: str, arguments: Mapping[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the running service and begin an operation. Raises NotRunning."""
    with _Reachable(data_dir) as path:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(_(NO_SERVICE, data_dir=data_dir)) from None
    request = {"operation": operation, "arguments": dict(arguments), "language": current_language()}
    writer.write(orjson.dumps(request) + b"\n")
    await writer.drain()
    return reader, writer


class _Reachable:
    """A path to the socket that fits into a socket address (108 bytes), however long data_dir is."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def __enter__(self) -> str:
        try:
            self._fd = os.open(self._data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NotRunning(_(NO_SERVICE, data_dir=self._data_dir)) from None
        return f"/proc/self/fd/{self._fd}/{SOCKET_NAME}"

    def __exit__(self, *_error: object) -> None:
        os.close(self._fd)
