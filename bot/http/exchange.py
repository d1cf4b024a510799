"""One request and its answer: who may ask, errors as problem+json, ids and the log, and the bound on slow readers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from aiohttp import web

from bot.base.log import request_var
from bot.config.http import HttpConfig
from bot.database.database import StorageError
from bot.database.migrate import DatabaseFault
from bot.http.route import HttpProblem, route_var
from bot.http.visitors import names_origin, refuse_visitor
from channels.base import NotStored

log = logging.getLogger(__name__)

WRITE_SECONDS = 30.0  # in which a client takes a whole answer
PROBLEM_TYPE = "application/problem+json"
ID_HEADER = "X-Request-Id"
HEADERS = {  # where the handler says nothing else
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
CORS_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
ASKED_HEADERS = "Authorization, X-Api-Key, Content-Type, Idempotency-Key, Last-Event-ID, If-None-Match"
TOLD_HEADERS = f"Content-Location, Location, X-Pagination-Next, ETag, Retry-After, {ID_HEADER}"
PROCESS = secrets.token_hex(4)  # begins the ids of its requests
_numbers = itertools.count(1)
KNOWN = {
    404: ("not_found", "There is nothing at this path.", "Compare the path with the documentation."),
    405: ("method_not_allowed", "This path does not take this method.", "Use one of the methods in the header Allow."),
    413: ("too_large", "The request is too large.", "Send less."),
    417: ("expectation_failed", "This expectation cannot be met.", "Send the request without the header Expect."),
}
BUSY = HttpProblem(
    503, "not_stored", "The database did not take this now.", "Send it again.", headers={"Retry-After": "2"}
)

Next = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Answers requests. `write_seconds` bounds the reader of a whole answer, `visit` raises HttpProblem for a visitor
    who may not ask."""

    config: HttpConfig
    write_seconds: float = WRITE_SECONDS
    visit: Callable[[HttpConfig, web.Request], None] = refuse_visitor

    async def answer(self, request: web.Request, handler: Next) -> web.StreamResponse:
        """Check the visitor, run the handler, and log. Never raises but for the end of the connection."""
        request_var.set(f"{PROCESS}{next(_numbers):08x}")
        began = time.monotonic()
        try:
            self.visit(self.config, request)
            asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
            response = _allow(request) if asks and names_origin(self.config, request) else await handler(request)
        except HttpProblem as problem:
            response = render_problem(problem)
        except web.HTTPException as error:
            response = render_problem(_known_problem(error))
        except (StorageError, DatabaseFault, NotStored):
            log.warning("http.not_stored method=%s", request.method)
            response = render_problem(BUSY)
        except ConnectionError:
            raise  # the client left
        except Exception:  # the boundary of one request
            log.exception("http.fault")
            fix = "The log of the service explains it under the id of this request."
            response = render_problem(HttpProblem(500, "fault", "Fawn made a mistake.", fix))
        if request.body_exists and (request.content.exception() or not request.content.is_eof()):
            response.force_close()  # the rest of the body is not read: say so, since nothing can follow it
        _log_answer(request, response, time.monotonic() - began)
        if type(response) is web.Response:
            await self._write(request, response)
        return response

    async def _write(self, request: web.Request, response: web.Response) -> None:
        """Write a whole answer. The connection of a client that does not take it is closed."""
        try:
            async with asyncio.timeout(self.write_seconds):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            log.info("http.slow_reader")
            if request.transport:
                request.transport.abort()


def _allow(request: web.Request) -> web.Response:
    """Answer the question of a browser whether a page of a named origin may call the API. No cookie opens anything.

    https://fetch.spec.whatwg.org/#http-cors-protocol
    """
    asked = request.headers.get("Access-Control-Request-Method", "")
    headers = {"Access-Control-Allow-Headers": ASKED_HEADERS, "Access-Control-Max-Age": "600"}
    methods = asked if asked in CORS_METHODS else ", ".join(CORS_METHODS)
    return web.Response(status=204, headers={**headers, "Access-Control-Allow-Methods": methods})


async def add_headers(config: HttpConfig, request: web.Request, response: web.StreamResponse) -> None:
    """Add what each answer has, also one that is sent in pieces."""
    if config.origins:
        response.headers.add("Vary", "Origin")
        if names_origin(config, request):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = TOLD_HEADERS
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "Fawn"
    response.headers[ID_HEADER] = request_var.get()


def render_problem(problem: HttpProblem) -> web.Response:
    """Return a problem as RFC 9457 has it. https://www.rfc-editor.org/rfc/rfc9457"""
    body = {"type": "about:blank", "title": problem.what, "status": problem.status, "code": problem.code}
    body |= {"detail": problem.fix} if problem.fix else {}
    return web.Response(
        status=problem.status,
        body=orjson.dumps(body | {"request": request_var.get()}) + b"\n",
        content_type=PROBLEM_TYPE,
        headers=problem.headers,
    )


def _known_problem(error: web.HTTPException) -> HttpProblem:
    code, what, fix = KNOWN.get(error.status, ("refused", error.reason, ""))
    kept = {name: error.headers[name] for name in ("Allow", "Location") if name in error.headers}
    return HttpProblem(error.status, code, what, fix, headers=kept)


def _log_answer(request: web.Request, response: web.StreamResponse, seconds: float) -> None:
    route = route_var.get(None)
    quiet = response.status < 400 and (request.method in ("GET", "HEAD") or (route and route.quiet))
    log.log(
        logging.DEBUG if quiet else logging.INFO,
        "http.answered method=%s path=%s status=%d seconds=%.3f",
        *(request.method, route.path if route else "", response.status, seconds),
    )
