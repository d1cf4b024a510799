"""JSON-RPC 2.0 with a program in a sandbox, one message a line on its stdin and stdout.

The program may be anything: sizes are bounded, and lines that are no messages are kept for the error text only.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import orjson

from catalogue import N_, LazyText, LocalizedError
from sandbox.base import Sandbox, SandboxError, ShellCommand

log = logging.getLogger(__name__)

MAX_TRAFFIC_BYTES = 8 << 20  # from the program, in one run
MAX_RUN_SECONDS = 86_400.0  # the caller's own timeout is shorter
MAX_NOISE_CHARS = 2000
METHOD_NOT_FOUND, SERVER_ERROR = -32601, -32000
# stdout belongs to the protocol, so the end of stderr comes after the program has ended.
SCRIPT = '{command} 2>"/tmp/.{name}.err"; code=$?; echo; tail -c 2000 "/tmp/.{name}.err"; exit $code'

Json = dict[str, Any]
AnswerRequest = Callable[[str, Json], Awaitable[Any]]
"""Return the result of a request of the program. Raises AcpError, or SandboxError, which it gets as the error."""


class AcpError(LocalizedError):
    """The program did not do its work. The text says why, in a part of a sentence."""


class UnknownMethod(AcpError):
    """The program calls a method that we do not have."""


class AcpConnection:
    """Requests in both directions with one program."""

    def __init__(self, name: str, answer: AnswerRequest, notify: Callable[[str, Json], None]) -> None:
        self._name, self._answer, self._notify = name, answer, notify
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: AcpError | None = None
        self._line, self._noise, self._received = "", "", 0

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
        self._send({"id": number, "method": method, "params": params})
        result = await future
        return result if isinstance(result, dict) else {}

    async def _run(self, sandbox: Sandbox, command: str, env: Mapping[str, str]) -> None:
        script = SCRIPT.format(command=command, name=self._name)
        most = 2 * MAX_TRAFFIC_BYTES  # the first half arrives while the program runs
        shell = ShellCommand(script, None, env, MAX_RUN_SECONDS, most, self._receive, self._stdin())
        try:
            result = await sandbox.run(shell)
            self._noise += f"\n{self._line}"
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
            yield await self._outgoing.get()

    def _send(self, message: Json) -> None:
        self._outgoing.put_nowait(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")

    async def _receive(self, text: str) -> None:
        self._received += len(text.encode())
        if self._received >= MAX_TRAFFIC_BYTES:
            raise AcpError(N_("it wrote more than {size} MB"), size=MAX_TRAFFIC_BYTES >> 20)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._handle_line(line)

    def _handle_line(self, line: str) -> None:
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            message = None
        match message:
            case {"method": str(method), "id": int() | str() as id}:
                self._begin(self._answer_request(id, method, _params(message)), method)
            case {"method": str(method)}:
                self._notify(method, _params(message))
            case {"id": int(id), "result": result} if id in self._waiting:
                _settle(self._waiting.pop(id), result)
            case {"id": int(id), "error": error} if id in self._waiting:
                why = error.get("message") if isinstance(error, dict) else error
                detail = error.get("data") if isinstance(error, dict) else None
                words = str(why)[:MAX_NOISE_CHARS] + (f" ({detail!s:.500})" if detail else "")
                _settle(self._waiting.pop(id), AcpError(N_("it answered: {words}"), words=words))
            case _:
                self._noise = f"{self._noise}\n{line}"[-MAX_NOISE_CHARS:]

    async def _answer_request(self, id: int | str, method: str, params: Json) -> None:
        try:
            self._send({"id": id, "result": await self._answer(method, params)})
        except (AcpError, SandboxError) as error:
            code = METHOD_NOT_FOUND if isinstance(error, UnknownMethod) else SERVER_ERROR
            self._send({"id": id, "error": {"code": code, "message": str(error)}})
        except Exception:  # the program waits for an answer, whatever failed
            log.exception("acp.answer_failed agent=%s method=%s", self._name, method[:100])
            self._send({"id": id, "error": {"code": SERVER_ERROR, "message": "Internal error"}})

    def _begin(self, work: Any, what: str) -> None:
        task = asyncio.create_task(work, name=f"acp-{self._name}:{what[:50]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        if isinstance(result, AcpError):
            future.set_exception(result)
        else:
            future.set_result(result)
