"""JSON-RPC 2.0 with a program in a sandbox, one message a line on its stdin and stdout.

The program may be anything: sizes are bounded, and lines that are no messages are kept for the error text only.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import orjson

from catalogue import N_, LazyText, LocalizedError
from sandbox.base import Sandbox, SandboxError, ShellCommand

log = logging.getLogger(__name__)

MAX_TRAFFIC_BYTES = 8 << 20  # from the program, in one run
MAX_LINE_CHARS = 1 << 20
MAX_OPEN_REQUESTS = 16  # of the program, that wait for their answers
MAX_WAITING_BYTES = 1 << 20  # of answers that the sandbox has not taken: then the program is not read either
MAX_ANSWER_BYTES = 64 << 20  # to the program, in one run: its sandbox keeps what it does not read
LINES_PER_STEP = 100  # of the event loop
MAX_RUN_SECONDS = 86_400.0  # the caller's own timeout is shorter
MAX_NOISE_CHARS = 2000
METHOD_NOT_FOUND, SERVER_ERROR, TOO_MANY = -32601, -32000, -32005
# stdout belongs to the protocol, so the end of stderr comes after the program has ended.
SCRIPT = '{command} 2>"/tmp/.{name}.err"; code=$?; echo; tail -c 2000 "/tmp/.{name}.err"; exit $code'

Json = dict[str, Any]
AnswerRequest = Callable[[str, Json], Awaitable[Any]]
"""Return the result of a request of the program. Raises AcpError, or SandboxError, which it gets as the error."""


class AcpError(LocalizedError):
    """The program did not do its work. The text says why, in a part of a sentence."""


class AcpRefused(AcpError):
    """The program answered a request with an error."""

    def __init__(self, code: object, words: str) -> None:
        super().__init__(N_("it answered: {words}"), words=words)
        self.code = code


class UnknownMethod(AcpError):
    """The program calls a method that we do not have."""


class AcpConnection:
    """Requests in both directions with one program."""

    def __init__(self, name: str, answer: AnswerRequest, notify: Callable[[str, Json], None]) -> None:
        self._name, self._answer, self._notify = name, answer, notify
        self._outgoing: deque[bytes] = deque()
        self._waiting_bytes, self._changed = 0, asyncio.Condition()
        self._sent = 0  # bytes
        self._open = 0  # requests of the program
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: AcpError | None = None
        self._line: list[str] = []  # pieces of the line that has not ended
        self._line_chars, self._noise, self._received = 0, "", 0

    def start(self, sandbox: Sandbox, command: str, env: Mapping[str, str]) -> None:
        """Start the program. `close` must follow."""
        self._begin(self._run(sandbox, command, env), "run")

    async def close(self) -> None:
        """Kill the program with all its child processes, and stop answering it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def request(self, method: str, params: Json) -> Json:
        """Send a request and return its result. Raises AcpError."""
        if self._failure:
            raise self._failure
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        result = await future
        return result if isinstance(result, dict) else {}

    async def _run(self, sandbox: Sandbox, command: str, env: Mapping[str, str]) -> None:
        script = SCRIPT.format(command=command, name=self._name)
        most = 2 * MAX_TRAFFIC_BYTES  # the first half arrives while the program runs
        shell = ShellCommand(script, None, env, MAX_RUN_SECONDS, most, self._receive, self._stdin())
        try:
            result = await sandbox.run(shell)
            self._note_noise("".join(self._line))
            self._fail(LazyText(N_("it ended with exit code {code}"), code=result.exit_code))
        except (AcpError, SandboxError) as error:
            self._fail(error.text)

    def _fail(self, why: LazyText) -> None:
        noise = self._noise.strip()[-MAX_NOISE_CHARS:]
        self._failure = (
            AcpError(N_("{why}. Its last output:\n{noise}"), why=why, noise=noise) if noise else AcpError(why)
        )
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._failure)

    async def _stdin(self) -> AsyncIterator[bytes]:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._outgoing))
                data = self._outgoing.popleft()
                self._waiting_bytes -= len(data)
                self._changed.notify_all()
            yield data

    async def room(self) -> None:
        """Wait until the program has read most of its answers."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting_bytes < MAX_WAITING_BYTES)

    async def _send(self, message: Json) -> None:
        data = orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n"
        async with self._changed:
            self._outgoing.append(data)
            self._waiting_bytes += len(data)
            self._sent += len(data)
            self._changed.notify_all()

    async def _receive(self, text: str) -> None:
        self._received += len(text.encode())
        if self._received >= MAX_TRAFFIC_BYTES:
            raise AcpError(N_("it wrote more than {size} MB"), size=MAX_TRAFFIC_BYTES >> 20)
        first, *rest = text.split("\n")
        self._line.append(first)
        self._line_chars += len(first)
        for number, piece in enumerate(rest):
            self._check_line()
            line, self._line, self._line_chars = "".join(self._line), [piece], len(piece)
            if line and not line.isspace():
                await self.room()
                if self._sent > MAX_ANSWER_BYTES:
                    raise AcpError(N_("it asked for more than {size} MB"), size=MAX_ANSWER_BYTES >> 20)
                await self._handle_line(line)
            if number % LINES_PER_STEP == 0:
                await asyncio.sleep(0)
        self._check_line()

    def _check_line(self) -> None:
        if self._line_chars > MAX_LINE_CHARS:
            raise AcpError(N_("it wrote a line of more than {size} MB"), size=MAX_LINE_CHARS >> 20)

    def _note_noise(self, line: str) -> None:
        self._noise = f"{self._noise}\n{line[-MAX_NOISE_CHARS:]}"[-MAX_NOISE_CHARS:]

    async def _handle_line(self, line: str) -> None:
        message: Any = _parse(line)
        match message:
            case {"method": str(), "id": int() | str() as id} if self._open >= MAX_OPEN_REQUESTS:
                words = f"At most {MAX_OPEN_REQUESTS} requests may wait for an answer. Send this one again later."
                await self._send({"id": id, "error": {"code": TOO_MANY, "message": words}})
            case {"method": str(method), "id": int() | str() as id}:
                self._open += 1
                self._begin(self._answer_request(id, method, _params(message)), method)
            case {"method": str(method)}:
                self._notify(method, _params(message))
            case {"id": int(id), "result": result} if id in self._waiting:
                _settle(self._waiting.pop(id), result)
            case {"id": int(id), "error": error} if id in self._waiting:
                why = error.get("message") if isinstance(error, dict) else error
                detail = error.get("data") if isinstance(error, dict) else None
                words = str(why)[:MAX_NOISE_CHARS] + (f" ({detail!s:.500})" if detail else "")
                code = error.get("code") if isinstance(error, dict) else None
                _settle(self._waiting.pop(id), AcpRefused(code, words))
            case _:
                self._note_noise(line)

    async def _answer_request(self, id: int | str, method: str, params: Json) -> None:
        try:
            await self._send({"id": id, "result": await self._answer(method, params)})
        except (AcpError, SandboxError) as error:
            code = METHOD_NOT_FOUND if isinstance(error, UnknownMethod) else SERVER_ERROR
            await self._send({"id": id, "error": {"code": code, "message": str(error)}})
        except Exception:  # the program waits for an answer, whatever failed
            log.exception("acp.answer_failed agent=%s method=%s", self._name, method[:100])
            await self._send({"id": id, "error": {"code": SERVER_ERROR, "message": "Internal error"}})
        finally:
            self._open -= 1

    def _begin(self, work: Any, what: str) -> None:
        task = asyncio.create_task(work, name=f"acp-{self._name}:{what[:50]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _parse(line: str) -> Any:
    """Return the value of a line, None if it is no JSON. JavaScript writes lone surrogates, which become `?`."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        if "\\ud" not in line.lower():
            return None
    try:
        return orjson.loads(json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        if isinstance(result, AcpError):
            future.set_exception(result)
        else:
            future.set_result(result)
