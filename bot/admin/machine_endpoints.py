"""Serve to a user of this machine what no key opens: the operations of an operator, and consoles that attach.

The routes are on the socket in data_dir only (`bot/http/local_socket.py`), never on an address.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bot.admin.operations import NotFound, OddRequest, Operation
from bot.database.migrate import DatabaseFault
from bot.http.event_stream import EventStream, stream_events
from bot.http.exchange import render_problem
from bot.http.route import HttpProblem, Route, json_response, read_json
from catalogue import default_language, localized, match_language, use_language
from channels.console.attached import CONFIRM_SECONDS, AttachedView

log = logging.getLogger(__name__)

EVENT_BYTES = 64 << 20  # of what a console sends
EVENT_SECONDS = 60.0
MAX_ODD_CHARS = 100  # of an odd request, in the answer
OPERATION_FIX = "It may be of another version of Fawn: restart the service."
HELLO = {"person": str, "topic": str, "interactive": bool}  # how a console presents itself

AttachConsole = Callable[[dict[str, Any], AttachedView], Awaitable[None]]


@dataclass(slots=True)
class MachineEndpoints:
    """The routes. `table` has the operations, `attach` serves a console until it leaves."""

    table: Mapping[str, Operation]
    attach: AttachConsole
    _consoles: dict[str, AttachedView] = field(default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def routes(self) -> Sequence[Route]:
        """Return the routes of operations and consoles."""
        consoles = "/v1/machine/consoles"
        return [
            Route("POST", "/v1/machine/operations/{operation}", self._operate, quiet=True),
            Route("POST", consoles, self._open, quiet=True),
            Route("POST", consoles + "/{console}/events", self._take, EVENT_BYTES, EVENT_SECONDS, quiet=True),
        ]

    async def _operate(self, request: web.Request) -> web.Response:
        """Run an operation. It goes on to its end when the client leaves."""
        arguments, name = await _read_object(request), request.match_info["operation"]
        operation = self.table.get(name)
        if operation is None:
            what = f"Unknown operation: {name[:MAX_ODD_CHARS]}."
            raise HttpProblem(404, "unknown_operation", what, OPERATION_FIX)
        _check_arguments(operation, arguments)
        return await asyncio.shield(self._start(_run_operation(operation, arguments, _language(request)), name))

    async def _open(self, request: web.Request) -> web.StreamResponse:
        """Attach a console: its id is the first event, each call of its view another, `end` the last one."""
        hello = _check_hello(await _read_object(request)) | {"language": _language(request)}
        view, console = AttachedView(is_interactive=hello.get("interactive", False)), secrets.token_hex(8)

        async def tell(stream: EventStream) -> None:
            self._consoles[console] = view
            try:
                await stream.send("opened", {"console": console})
                self._start(self._converse(hello, view), "console")
                while not (view.is_gone and not view.has_calls):
                    if view.has_calls:
                        await stream.write(view.take_calls())
                    else:
                        await stream.wait()
            finally:
                del self._consoles[console]
                view.leave()

        return await stream_events(request, view.woken, tell, write_seconds=CONFIRM_SECONDS)

    async def _converse(self, hello: dict[str, Any], view: AttachedView) -> None:
        try:
            await self.attach(hello, view)
        except Exception:  # the boundary of one console: the others go on
            log.exception("control.console_fault")
        finally:
            view.leave()

    async def _take(self, request: web.Request) -> web.Response:
        """Take what a console typed or pressed, or what it confirms to have shown."""
        event = await _read_object(request)
        view = self._consoles.get(request.match_info["console"])
        if view is None:
            raise HttpProblem(404, "no_console", "This console is not attached.", "Attach it again.")
        try:
            view.take_event(event)
        except (TypeError, ValueError, AttributeError) as error:
            raise HttpProblem(400, "bad_event", f"No console sends this: {error}"[:MAX_ODD_CHARS]) from error
        return web.Response(status=204)

    def _start(self, work: Any, name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=f"machine {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _run_operation(operation: Operation, arguments: dict[str, Any], language: str) -> web.Response:
    try:
        with use_language(match_language(language) or default_language()):
            return json_response(200, await operation(**arguments))
    except OddRequest as error:
        return render_problem(HttpProblem(400, "bad_arguments", str(error), OPERATION_FIX))
    except NotFound as error:
        return render_problem(HttpProblem(404, "not_found", str(error)))
    except DatabaseFault as error:
        return render_problem(HttpProblem(409, "refused", localized(error)))
    except Exception as error:  # the boundary of one request: the operator sees the error
        log.exception("control.fault operation=%s", operation.__name__)
        return render_problem(HttpProblem(500, "fault", f"{type(error).__name__}: {error}"))


def _language(request: web.Request) -> str:
    return request.headers.get("Accept-Language", "")


async def _read_object(request: web.Request) -> dict[str, Any]:
    found = await read_json(request)
    if not isinstance(found, dict):
        raise HttpProblem(400, "no_object", "The body is not an object.", "Send an object with the arguments.")
    return found


def _check_arguments(operation: Operation, arguments: dict[str, Any]) -> None:
    """Compare the arguments with the signature of the operation. Raises HttpProblem."""
    signature = inspect.signature(operation)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise HttpProblem(400, "bad_arguments", str(error)[:MAX_ODD_CHARS], OPERATION_FIX) from error
    for name, value in arguments.items():
        annotation = str(signature.parameters[name].annotation)
        if type(value).__name__ != annotation.partition("[")[0]:
            raise HttpProblem(400, "bad_arguments", f"`{name}` is of the wrong type: it is {annotation}", OPERATION_FIX)


def _check_hello(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return how a console presents itself. Raises HttpProblem."""
    known = all(name in HELLO and isinstance(value, HELLO[name]) for name, value in arguments.items())
    if not known or not arguments.get("person"):
        what = "A console gives its `person`, and may give `topic` and `interactive`."
        raise HttpProblem(400, "bad_console", what, OPERATION_FIX)
    return arguments
