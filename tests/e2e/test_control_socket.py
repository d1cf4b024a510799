"""The control socket answers whatever a program of the same user writes to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bot.admin.operations import LINE_BYTES, SOCKET_NAME
from tests.e2e.conftest import Start
from tests.support.service_process import Service

ODD: list[bytes] = [
    b"",
    b"\n",
    b"[]",
    b"null",
    b"7",
    b'"status"',
    b"nonsense",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"operation": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b"{}",
    b'{"operation": null}',
    b'{"operation": []}',
    b'{"operation": {"a": 1}}',
    b'{"operation": "no.such"}',
    b'{"operation": "console"}',
    b'{"operation": "console", "arguments": []}',
    b'{"operation": "console", "arguments": {"person": 7}}',
    b'{"operation": "console", "arguments": {"person": "jane", "interactive": {}}}',
    b'{"operation": "dead.drop", "arguments": {"id": 7}}',
    b'{"operation": "dead.drop", "arguments": {"id": "x", "more": 1}}',
    b'{"operation": "export", "arguments": {"thread": "x", "after": "many"}}',
    b'{"operation": "export", "arguments": "thread"}',
    b'{"operation": "forget", "arguments": {"channel": []}}',
    b'{"operation": "status", "arguments": null}',
    b'{"operation": "status", "language": 7}',
    b'{"operation": "pair.accept", "arguments": {"code": "\\ud800"}}',
    b'{"operation": "backup", "arguments": {"file": "a\\u0000b"}}',
    b'"' + b"x" * LINE_BYTES,
]


async def request(service: Service, line: bytes) -> dict[str, Any]:
    """Write a line to the socket and return the answer."""
    reader, writer = await asyncio.open_unix_connection(str(service.data / SOCKET_NAME), limit=LINE_BYTES)
    try:
        async with asyncio.timeout(20):
            writer.write(line + b"\n" * (line != b""))
            if writer.can_write_eof() and not line:
                writer.write_eof()
            answer: dict[str, Any] = json.loads(await reader.readline())
            return answer
    finally:
        writer.close()


async def test_every_odd_request_gets_an_error_and_the_service_goes_on(start: Start) -> None:
    service = await start()
    for line in ODD:
        answer = await request(service, line)
        assert list(answer) == ["error"], line[:80]
        assert isinstance(answer["error"], str)
        assert len(answer["error"]) < 1000
    assert (await request(service, b'{"operation": "pair.list"}')) == {"people": []}
    assert "Unhandled exception" not in service.log()
    assert "exception was never retrieved" not in service.log()
