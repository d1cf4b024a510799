"""Sandbox operations over the byte stream to the command server inside."""

from __future__ import annotations

import asyncio
import codecs
import math
import time

from sandbox.base import (
    WORKSPACE,
    CommandResult,
    Entry,
    Match,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    ShellCommand,
    child_path,
)
from sandbox.settings import SandboxSettings
from sandbox.wire.connection import (
    SERVER_DIED,
    ByteStream,
    Json,
    RpcConnection,
    parse_json,
    sanitize_text,
    server_source,
)

MAX_RESULT_BYTES = 8 << 20  # of a file operation
MAX_WRITE_BYTES = 32 << 20  # at once
MAX_DIAL_SECONDS = 86_400.0  # of a connection from outside
FILE_TIMEOUT_SECONDS = 30.0  # of a file operation


class StreamSandbox:
    """A `Sandbox` behind a byte stream on which `SERVER_COMMAND` runs."""

    runs_commands = True

    def __init__(self, stream: ByteStream, name: str, settings: SandboxSettings) -> None:
        self._connection = RpcConnection(stream, name)
        self._settings, self._kill_count = settings, 0
        self._cwd = WORKSPACE

    @property
    def gone(self) -> bool:
        return self._connection.gone

    async def start(self, processes: int = 0) -> None:
        """Start the server inside. `processes` limits the processes of commands, 0 does not. Raises SandboxGone."""
        await self._connection.start(await asyncio.to_thread(server_source, processes))

    async def close(self) -> None:
        """Stop the sandbox and everything that runs in it."""
        await self._connection.close()

    async def run(self, command: ShellCommand) -> CommandResult:
        if "\0" in command.text or any("\0" in part for pair in command.env.items() for part in pair):
            raise SandboxError("A command cannot contain the character NUL.")
        if not 0 < command.timeout_seconds < math.inf:  # false for NaN, too
            raise SandboxError("A timeout must be a number of seconds above zero.")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        async def forward(data: bytes) -> None:
            if command.on_output and (text := decoder.decode(data)):
                await command.on_output(text)

        begun = time.monotonic()
        cwd, most, limit = command.cwd or self._cwd, command.max_output_bytes, command.timeout_seconds
        request: dict[str, Json] = {"op": "run", "command": command.text, "cwd": cwd, "env": dict(command.env)}
        if command.stdin:
            request["stdin"] = True
        elif not command.is_background:
            limit = min(limit, self._settings.command_seconds)
        on_data = forward if command.on_output else None
        data, end = await self._connection.call(request, limit, most, on_data, stdin=command.stdin)
        if end.cwd.startswith("/") and end.cwd.isprintable() and len(end.cwd) < 4096:
            cwd = end.cwd
            if not command.is_background:
                self._cwd = cwd
        if end.dropped:
            half = most - most // 2  # bytes of the beginning; the rest are of the end
            data = data[:half] + f"\n[… {end.dropped:,} bytes left out …]\n".encode() + data[half:]
        output = data.decode("utf-8", "replace")
        result = CommandResult(end.exit, output, end.dropped, cwd, end.exit is None, time.monotonic() - begun)
        before = self._kill_count
        if end.exit == 137 or "Killed" in output:
            self._kill_count = max(before, await self.oom_kills())
        return self._settings.with_limit_notes(result, out_of_memory=self._kill_count > before)

    async def oom_kills(self) -> int:
        """Count the processes killed for lack of memory so far; 0 where the provider does not know."""
        return 0

    async def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """See `Sandbox.read`. `limit` is at most 4 MiB."""
        return (await self._file("read", path, offset=offset, limit=min(limit, 4 << 20)))[:limit]

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """See `Sandbox.write`. At most 32 MiB at once."""
        if len(data) > MAX_WRITE_BYTES:
            raise SandboxFileError(f"{path}: more than {MAX_WRITE_BYTES >> 20} MiB cannot be written at once")
        await self._file("write", path, data, append=append)

    async def stat(self, path: str) -> Entry:
        match parse_json(await self._file("stat", path)):
            case [str(real), int(size), str(kind)]:
                return Entry(sanitize_text(real), size, sanitize_text(kind))
        raise SandboxGone(SERVER_DIED)

    async def realpath(self, path: str) -> str:
        return sanitize_text((await self._file("realpath", path)).decode("utf-8", "replace"))

    async def ls(self, path: str, *, depth: int = 1, limit: int = 1000) -> list[Entry]:
        rows = _parse_rows(await self._file("ls", path, depth=depth, limit=limit), limit)
        return [Entry(child_path(path, rel), size, sanitize_text(kind)) for rel, size, kind in rows]

    async def glob(self, pattern: str, path: str, *, limit: int = 200) -> list[str]:
        found = parse_json(await self._file("glob", path, pattern=pattern, limit=limit))
        if not isinstance(found, list):
            raise SandboxGone(SERVER_DIED)
        return [child_path(path, sanitize_text(rel)) for rel in found[:limit] if isinstance(rel, str)]

    async def grep(self, regex: str, path: str, *, glob: str = "**", limit: int = 100) -> list[Match]:
        rows = _parse_rows(await self._file("grep", path, regex=regex, pattern=glob, limit=limit), limit)
        return [Match(child_path(path, rel), line, text) for rel, line, text in rows]

    async def dial(self, port: int, socket: str, ticket: str) -> None:
        """Connect a port with a unix socket, and send `ticket` there first, until the connection ends."""
        request: dict[str, Json] = {"op": "dial", "path": f"port {port}", "port": port, "socket": socket}
        answer, _ = await self._connection.call({**request, "ticket": ticket}, MAX_DIAL_SECONDS, 1000)
        if answer[:1] != b"+":
            raise SandboxError(sanitize_text(answer[1:].decode("utf-8", "replace")))

    async def _file(self, op: str, path: str, body: bytes = b"", **rest: Json) -> bytes:
        """Run a file operation. Its answer begins with "+" or "-"."""
        if not path.startswith("/") or "\0" in path:
            raise SandboxFileError(f"{sanitize_text(path)}: a path must be absolute")
        answer, end = await self._connection.call(
            {"op": op, "path": path, **rest}, FILE_TIMEOUT_SECONDS, MAX_RESULT_BYTES, body=body
        )
        if end.dropped:
            raise SandboxFileError(f"{path}: the answer is too big")
        if answer[:1] == b"+" and end.exit == 0:
            return answer[1:]
        if answer[:1] == b"-":
            raise SandboxFileError(sanitize_text(answer[1:].decode("utf-8", "replace")))
        raise SandboxFileError(f"{path}: took too long" if end.exit is None else f"{path}: the sandbox could not do it")


def _parse_rows(data: bytes, limit: int) -> list[tuple[str, int, str]]:
    rows = parse_json(data)
    good: list[tuple[str, int, str]] = []
    for row in rows if isinstance(rows, list) else []:
        match row:
            case [str(rel), int(number), str(text)]:
                good.append((sanitize_text(rel), number, sanitize_text(text)))
    return good[:limit]
