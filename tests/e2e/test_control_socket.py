"""The socket of this machine answers whatever a program of the same user writes to it: HTTP, as at an address."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import aiohttp

from bot.http.socket_path import SOCKET_NAME
from tests.e2e.conftest import Start
from tests.support.service_process import Service

OPERATIONS, CONSOLES = "/v1/machine/operations/", "/v1/machine/consoles"
JSON = {"Content-Type": "application/json"}
ODD: list[tuple[str, bytes, int]] = [
    (OPERATIONS + "status", b"", 400),
    (OPERATIONS + "status", b"[]", 400),
    (OPERATIONS + "status", b"null", 400),
    (OPERATIONS + "status", b"7", 400),
    (OPERATIONS + "status", b'"status"', 400),
    (OPERATIONS + "status", b"nonsense", 400),
    (OPERATIONS + "status", b"\xff\xfe\x00", 400),
    (OPERATIONS + "status", b"[" * 50_000, 400),
    (OPERATIONS + "status", b'"' + b"x" * 100_000, 413),
    (OPERATIONS + "status", b'{"more": 1}', 400),
    (OPERATIONS + "no.such", b"{}", 404),
    (OPERATIONS + "%2e%2e%2fstatus", b"{}", 404),
    (OPERATIONS, b"{}", 404),
    (OPERATIONS + "dead.drop", b'{"id": 7}', 400),
    (OPERATIONS + "dead.drop", b'{"id": "x", "more": 1}', 400),
    (OPERATIONS + "dead.drop", b'{"id": "x"}', 404),
    (OPERATIONS + "export", b'{"thread": "x", "after": "many"}', 400),
    (OPERATIONS + "forget", b'{"channel": []}', 400),
    (OPERATIONS + "drill.note", b'{"figures": [], "passed": true}', 400),
    (OPERATIONS + "pair.accept", b'{"code": "\\ud800"}', 400),
    (OPERATIONS + "backup", b'{"file": "a\\u0000b"}', 500),
    (CONSOLES, b"{}", 400),
    (CONSOLES, b"[]", 400),
    (CONSOLES, b'{"person": 7}', 400),
    (CONSOLES, b'{"person": ""}', 400),
    (CONSOLES, b'{"person": "jane", "interactive": {}}', 400),
    (CONSOLES, b'{"person": "jane", "more": 1}', 400),
    (CONSOLES + "/0123456789abcdef/events", b'{"typed": "hi", "files": []}', 404),
]
ODD_EVENTS = [
    b"{}",
    b'{"typed": 7, "files": []}',
    b'{"typed": "hi", "files": 7}',
    b'{"typed": "hi", "files": [7]}',
    b'{"typed": "hi", "files": [{"name": "a"}]}',
    b'{"key": "no such"}',
    b'{"key": {}}',
    b'{"end": false}',
    b'{"confirmed": "1"}',
]


def client(service: Service) -> aiohttp.ClientSession:
    connector = aiohttp.UnixConnector(str(service.data / SOCKET_NAME))
    return aiohttp.ClientSession("http://localhost", connector=connector, headers=JSON)


async def post(session: aiohttp.ClientSession, path: str, body: bytes) -> tuple[int, Any]:
    async with session.post(path, data=body, timeout=aiohttp.ClientTimeout(20)) as answer:
        raw = await answer.read()
        return answer.status, json.loads(raw) if raw else None


async def test_every_odd_request_is_a_problem_and_the_service_goes_on(start: Start) -> None:
    service = await start()
    async with client(service) as session:
        for path, body, status in ODD:
            found, problem = await post(session, path, body)
            assert (found, problem["status"]) == (status, status), (path, body[:80], problem)
            assert len(problem["title"]) < 1000
        assert await post(session, OPERATIONS + "pair.list", b"{}") == (200, {"people": []})
    assert "Unhandled exception" not in service.log()
    assert "exception was never retrieved" not in service.log()


async def test_lines_that_are_no_http_are_refused(start: Start) -> None:
    service = await start()
    for line in (
        b"\n",
        b"nonsense\r\n\r\n",
        b'{"operation": "status"}\n',
        b"\x16\x03\x01\x00\x00" * 40,
        b"x" * 100_000,
    ):
        reader, writer = await asyncio.open_unix_connection(str(service.data / SOCKET_NAME))
        async with asyncio.timeout(60):
            writer.write(line)
            writer.write_eof()
            answer = await reader.read()
        assert answer == b"" or re.match(rb"HTTP/1\.[01] 400 ", answer), (line[:40], answer)
        writer.close()
    async with client(service) as session:
        assert (await post(session, OPERATIONS + "pair.list", b"{}"))[0] == 200


async def test_odd_events_of_a_console_are_problems_and_it_goes_on(start: Start) -> None:
    service = await start()
    async with client(service) as session, session.post(CONSOLES, data=b'{"person": "jane"}') as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        console = await opened(stream)
        for body in ODD_EVENTS:
            status, problem = await post(session, f"{CONSOLES}/{console}/events", body)
            assert (status, problem["code"]) == (400, "bad_event"), (body, problem)
        typed = json.dumps({"typed": "/status", "files": []}).encode()
        assert await post(session, f"{CONSOLES}/{console}/events", typed) == (204, None)
        call, data = await shown(stream)
        assert call == "write_reply"
        assert "Model: main." in data["arguments"][0]["text"]
    assert "exception was never retrieved" not in service.log()


async def opened(stream: aiohttp.ClientResponse) -> str:
    """Return the id of a console, which its first event has."""
    async for line in stream.content:
        if line.startswith(b"data: "):
            return str(json.loads(line[6:])["console"])
    raise AssertionError("the stream ended")


async def shown(stream: aiohttp.ClientResponse) -> tuple[str, Any]:
    """Return the next call that prints something."""
    call = ""
    async with asyncio.timeout(60):
        async for line in stream.content:
            if line.startswith(b"event: "):
                call = line[7:].strip().decode()
            elif line.startswith(b"data: ") and call.startswith("write"):
                return call, json.loads(line[6:])
    raise AssertionError("the stream ended")


async def test_the_socket_has_the_probes_and_no_address_has_what_is_of_the_machine(start: Start) -> None:
    service = await start(http={"listen": "127.0.0.1:0"})
    async with client(service) as session:
        async with session.get("/readyz") as answer:
            assert list(await answer.json()) == ["ready", "troubles"]
        async with session.get("/v1/models") as answer:  # the API itself, which takes a key here, too
            assert answer.status == 401
        _status, made = await post(session, OPERATIONS + "web.link", b'{"person": "telegram/7000"}')
        address = str(made["link"]).partition("/login")[0]
        key = {"name": "k", "person": "telegram/7000", "scopes": "read,operate,threads", "expires": ""}
        _status, made = await post(session, OPERATIONS + "key.add", json.dumps(key).encode())
    headers = {"Authorization": f"Bearer {made['key']}", **JSON}
    async with aiohttp.ClientSession(address, headers=headers) as stranger:
        for path in (OPERATIONS + "status", OPERATIONS + "key.list", CONSOLES, f"{CONSOLES}/x/events"):
            assert (await post(stranger, path, b"{}"))[0] in (404, 405), path
