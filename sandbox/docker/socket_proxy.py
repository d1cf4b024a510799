"""Stand between the service and the Docker engine: `python -m sandbox.docker.socket_proxy --listen SOCKET --data DIR`.

Whoever has the engine's socket is root on its host. Behind this proxy the service has only the calls that its sandboxes
need (`proxy_rules`). Before the first program starts in a container, the proxy compares the folders that the container
has with those below `--data` by device and inode: a symbolic link that leads out of it is found, whenever it was made.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import h11

from sandbox.base import SandboxError, StreamPair
from sandbox.docker.client import DockerEngine
from sandbox.docker.host_paths import find_host_paths
from sandbox.docker.proxy_rules import INFO_KEYS, Call, CallRefused, ProxyRules, is_sandbox, judge, own_mounts_only
from sandbox.docker.spec import INSTANCE
from sandbox.network.http import PEER_ERRORS, BadRequest, HttpPeer, carry_bytes, run_both_ways

log = logging.getLogger("socket_proxy")

MAX_BODY_BYTES = 1 << 20
MAX_ANSWER_BYTES = 16 << 20
ENGINE_SECONDS = 30.0
IDLE_SECONDS = 7 * 86400.0  # of the command server's connection, which lasts as long as the sandbox
MAX_CONNECTIONS = 2000
LOOK = "import os, sys\nfor path in sys.argv[1:]:\n    found = os.stat(path)\n    print(found.st_dev, found.st_ino)"
JSON = ("Content-Type", "application/json")
Answer = tuple[int, bytes]


class SocketProxy:
    """Answers on a socket for the engine at `engine`. `here` is the service's data as this process sees it."""

    def __init__(self, engine: str, here: Path, rules: ProxyRules) -> None:
        self._engine, self._here, self._rules = engine, here, rules
        self._seen: set[str] = set()  # containers whose folders were compared
        self._busy = asyncio.Semaphore(MAX_CONNECTIONS)

    async def serve(self, ends: StreamPair) -> None:
        """Answer one request, and relay a program's bytes if it starts one."""
        async with self._busy, HttpPeer(h11.SERVER, ends) as client:
            try:
                await self._answer(client, await client.read_request())
            except BadRequest as error:
                await _respond(client, 400, _message(str(error)))
            except PEER_ERRORS:
                pass  # the service closed the connection
            except TimeoutError:
                await _respond(client, 504, _message("the engine did not answer in time"))

    async def _answer(self, client: HttpPeer, request: h11.Request) -> None:
        body = bytearray()
        while isinstance(event := await client.receive(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise BadRequest("the body is too long")
        method, target = request.method.decode("ascii"), request.target.decode("ascii", "replace")
        try:
            call = judge(method, target, bytes(body), self._rules)
            if call.kind == "run":
                await self._run_program(client, call.subject)
                return
            async with asyncio.timeout(ENGINE_SECONDS):
                status, answer = await self._make(call)
        except CallRefused as error:
            log.warning("socket_proxy.refused method=%s path=%s reason=%s", method, urlsplit(target).path[:200], error)
            status, answer = 403, _message(f"The socket proxy refused: {error}.")
        except OSError as error:
            log.warning("socket_proxy.no_engine reason=%s", error)
            status, answer = 502, _message("the engine cannot be reached")
        await _respond(client, status, answer)

    async def _make(self, call: Call) -> Answer:
        """Make the call that passed. Raises CallRefused, OSError and TimeoutError."""
        if call.kind in ("ping", "version"):
            return await self._ask("GET", "/_ping" if call.kind == "ping" else "/version")
        if call.kind == "info":
            status, found = await self._look("/info")
            return status, _packed(
                {name: found[name] for name in INFO_KEYS if name in found} if status == 200 else found
            )
        if call.kind == "image":
            return await self._ask("GET", f"/images/{quote(call.subject, safe='/:')}/json")
        if call.kind == "list":
            return await self._ask("GET", f"/containers/json?{_all_with(call.subject)}")
        if call.kind == "create":
            return await self._create(call.subject, call.body or {})
        if call.kind == "inspect":
            status, found = await self._look(f"/containers/{call.subject}/json")
            if status == 200 and not is_sandbox(found):
                found = own_mounts_only(found, self._rules.data)
            return status, _packed(found)
        if call.kind == "program":
            return await self._program_of_sandbox(call.subject)
        return await self._change(call)

    async def _create(self, name: str, body: Mapping[str, Any]) -> Answer:
        """Create a container of an allowed image, as long as there are not too many."""
        allowed = set(self._rules.images)
        for image in self._rules.images:
            status, found = await self._look(f"/images/{quote(image, safe='/:')}/json")
            allowed |= {str(found["Id"])} if status == 200 else set()
        if body["Image"] not in allowed:
            raise CallRefused("this image is not allowed")
        _, listed = await self._ask("GET", f"/containers/json?{_all_with(INSTANCE)}")
        if len(json.loads(listed)) >= self._rules.containers:
            raise CallRefused(f"there are {self._rules.containers} containers already")
        return await self._ask("POST", f"/containers/create?{urlencode({'name': name})}", _packed(body))

    async def _change(self, call: Call) -> Answer:
        """Start or remove a sandbox's container, or prepare a program in it."""
        status, found = await self._look(f"/containers/{call.subject}/json")
        if status != 200:
            return status, _packed(found)
        if not is_sandbox(found):
            raise CallRefused("this container is no sandbox")
        container = str(found["Id"])
        if call.kind == "start":
            return await self._ask("POST", f"/containers/{container}/start")
        if call.kind == "remove":
            self._seen.discard(container)
            return await self._ask("DELETE", f"/containers/{container}?v=1&force=1")
        if container not in self._seen and (found.get("State") or {}).get("Running"):
            await self._compare_folders(container, found)
            self._seen.add(container)
        return await self._ask("POST", f"/containers/{container}/exec", _packed(call.body or {}))

    async def _compare_folders(self, container: str, found: Mapping[str, Any]) -> None:
        """Raise CallRefused unless each folder of the container is the one below the data that it is said to be."""
        mounts = [(each["Source"], each["Target"]) for each in found["HostConfig"].get("Mounts") or ()]
        wanted = [_identity(self._here, PurePosixPath(source).relative_to(self._rules.data)) for source, _ in mounts]
        program = {
            "AttachStdout": True,
            "Cmd": ["python3", "-I", "-S", "-c", LOOK, *(target for _, target in mounts)],
        }
        status, made = await self._ask("POST", f"/containers/{container}/exec", _packed(program))
        if status != 201:
            raise CallRefused("the container's folders could not be compared")
        number = json.loads(made)["Id"]
        _, frames = await self._ask("POST", f"/exec/{number}/start", _packed({"Tty": False, "Detach": False}))
        seen = [tuple(map(int, line.split())) for line in _stdout(frames).splitlines()]
        if seen != wanted:
            await self._ask("DELETE", f"/containers/{container}?v=1&force=1")
            raise CallRefused("a folder of the container is not below the data of the service")

    async def _program_of_sandbox(self, number: str) -> Answer:
        """Describe a program. Raises CallRefused for one that runs in no sandbox."""
        status, found = await self._look(f"/exec/{number}/json")
        if status != 200:
            return status, _packed(found)
        status, container = await self._look(f"/containers/{found['ContainerID']}/json")
        if status != 200 or not is_sandbox(container):
            raise CallRefused("this program runs in no sandbox")
        return 200, _packed(found)

    async def _run_program(self, client: HttpPeer, number: str) -> None:
        """Start the prepared command server and relay its bytes until one side ends."""
        async with asyncio.timeout(ENGINE_SECONDS):
            status, answer = await self._program_of_sandbox(number)
            if status != 200:
                await _respond(client, status, answer)
                return
            ends = await asyncio.open_unix_connection(self._engine)
        async with HttpPeer(h11.CLIENT, ends) as engine:
            body = _packed({"Tty": False, "Detach": False})
            upgrade = [("Connection", "Upgrade"), ("Upgrade", "tcp")]
            await _request(engine, "POST", f"/exec/{number}/start", body, upgrade)
            async with asyncio.timeout(ENGINE_SECONDS):
                event = await engine.receive()
            if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
                await _respond(client, 502, _message("the engine did not start the program"))
                return
            await client.send_event(h11.InformationalResponse(status_code=101, headers=upgrade))
            await run_both_ways(
                [0, 0],
                IDLE_SECONDS,
                lambda moved: carry_bytes(client.reader, engine.writer, moved, client.unread),
                lambda moved: carry_bytes(engine.reader, client.writer, moved, engine.unread),
            )

    async def _look(self, target: str) -> tuple[int, dict[str, Any]]:
        status, answer = await self._ask("GET", target)
        try:
            found = json.loads(answer)
        except ValueError:
            found = {}
        return status, found if isinstance(found, dict) else {}

    async def _ask(self, method: str, target: str, body: bytes = b"") -> Answer:
        """Make one call of the engine. Raises OSError."""
        ends = await asyncio.open_unix_connection(self._engine)
        async with HttpPeer(h11.CLIENT, ends) as engine:
            try:
                await _request(engine, method, target, body, [("Connection", "close")])
                event = await engine.receive()
                while isinstance(event, h11.InformationalResponse):
                    event = await engine.receive()
                if not isinstance(event, h11.Response):
                    raise OSError("no response")
                status, answer = event.status_code, bytearray()
                while isinstance(event := await engine.receive(), h11.Data):
                    answer += event.data
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise OSError("the answer is too long")
            except h11.ProtocolError as error:
                raise OSError(str(error)) from error
            return status, bytes(answer)


def _identity(here: Path, relative: PurePosixPath) -> tuple[int, int]:
    """Return device and inode of what is below `here`, without following a link. Raises CallRefused."""
    descriptor = os.open(here, os.O_PATH | os.O_DIRECTORY)
    try:
        for part in relative.parts:
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise CallRefused("a folder of the container is a symbolic link")
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    except OSError as error:
        raise CallRefused(f"a folder of the container cannot be seen ({error.strerror})") from None
    finally:
        os.close(descriptor)


def _stdout(frames: bytes) -> str:
    """Return what a program wrote, from the engine's frames: a kind, three zeros and a size before each piece."""
    text, at = bytearray(), 0
    while at + 8 <= len(frames):
        size = int.from_bytes(frames[at + 4 : at + 8])
        text += frames[at + 8 : at + 8 + size] if frames[at] == 1 else b""
        at += 8 + size
    return text.decode("ascii", "replace")


def _all_with(label: str) -> str:
    return urlencode({"all": "1", "filters": json.dumps({"label": [label]})})


def _packed(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found).encode()


def _message(text: str) -> bytes:
    return _packed({"message": text})


async def _request(engine: HttpPeer, method: str, target: str, body: bytes, headers: Sequence[tuple[str, str]]) -> None:
    about = [("Host", "docker"), JSON, ("Content-Length", str(len(body))), *headers]
    await engine.send_event(h11.Request(method=method, target=target, headers=about))
    if body:
        await engine.send_event(h11.Data(data=body))
    await engine.send_event(h11.EndOfMessage())


async def _respond(client: HttpPeer, status: int, body: bytes) -> None:
    with contextlib.suppress(OSError, h11.LocalProtocolError):  # the service has gone, or was answered
        empty = status in (204, 304)
        length = [] if empty else [("Content-Length", str(len(body)))]
        head = [JSON, *length, ("Connection", "close")]
        await client.send_event(h11.Response(status_code=status, headers=head))
        if not empty:
            await client.send_event(h11.Data(data=body))
        await client.send_event(h11.EndOfMessage())


# ---------------------------------------------------------------- the program


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("socket_proxy", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--listen", required=True, type=Path, help="the socket for the service")
    parser.add_argument("--data", required=True, type=Path, help="the service's data_dir, as this process sees it")
    parser.add_argument("--engine", default="/var/run/docker.sock", help="the engine's socket")
    parser.add_argument("--image", action="append", help="an image of sandboxes (fawn-sandbox); may be repeated")
    parser.add_argument("--runtime", action="append", default=[], help="a runtime that sandboxes may have")
    parser.add_argument("--memory-mb", type=int, default=8192, help="the most memory of a sandbox (8192)")
    parser.add_argument("--cpus", type=float, default=8, help="the most processors of a sandbox (8)")
    parser.add_argument("--processes", type=int, default=4096, help="the most processes of a sandbox (4096)")
    parser.add_argument("--containers", type=int, default=600, help="how many sandboxes there may be (600)")
    return parser.parse_args()


async def run(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM. Raises SandboxError where the engine or the data cannot be found."""
    engine = DockerEngine(f"unix://{arguments.engine}")
    try:
        await engine.engine_info()
        data = PurePosixPath((await find_host_paths(engine)).host_path(arguments.data))
    finally:
        await engine.close()
    limits = {name: getattr(arguments, name) for name in ("memory_mb", "cpus", "processes", "containers")}
    images = tuple(arguments.image or ["fawn-sandbox"])
    rules = ProxyRules(data, images, tuple(arguments.runtime), **limits)
    proxy = SocketProxy(arguments.engine, arguments.data, rules)
    stopped, connections = asyncio.Event(), set[asyncio.Task[None]]()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)

    def begin(*ends: Any) -> None:
        task = asyncio.create_task(proxy.serve(ends), name="connection")
        connections.add(task)
        task.add_done_callback(connections.discard)

    arguments.listen.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(begin, arguments.listen, limit=1 << 18)
    arguments.listen.chmod(0o666)  # who sees its folder may use it
    log.info("ready listen=%s data=%s images=%s", arguments.listen, data, ",".join(images))
    await stopped.wait()
    server.close()
    for task in connections:
        task.cancel()


def main() -> int:
    """Run the proxy; the exit code is that of the process."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run(_parse()))
    except (SandboxError, OSError) as error:
        print(f"socket_proxy: {error}", file=sys.stderr)  # noqa: T201  it is a program, and this is for its operator
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
