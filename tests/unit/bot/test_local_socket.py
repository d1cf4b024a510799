"""The socket of this machine: who may ask is what the kernel says, and nothing is loaded before the first one asks."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from bot.admin.service_client import NotRunning, attach_console, call_service
from bot.http.local_socket import serving_machine
from bot.http.route import Route, json_response
from bot.http.socket_path import SOCKET_NAME

ASK = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    client.sendall(b"GET /who HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    while block := client.recv(65536):
        sys.stdout.buffer.write(block)
"""

LAZY = """
import asyncio, sys
from pathlib import Path
from bot.http.local_socket import serving_machine
from bot.http.socket_path import SOCKET_NAME

async def main():
    async with serving_machine(Path(sys.argv[1]), lambda: []):
        await asyncio.sleep(0)
        print("aiohttp" in sys.modules)
        reader, writer = await asyncio.open_unix_connection(Path(sys.argv[1]) / SOCKET_NAME)
        writer.write(b"GET /nothing HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        print((await reader.readline()).decode().strip())
        print("aiohttp" in sys.modules)

asyncio.run(main())
"""


async def _who(_request: web.Request) -> web.Response:
    return json_response(200, {"asked": True})


def routes() -> list[Route]:
    return [Route("GET", "/who", _who)]


async def test_another_user_is_refused_whatever_the_mode_of_the_socket(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to ask as another user")
    async with serving_machine(tmp_path, routes):
        path = tmp_path / SOCKET_NAME
        assert path.stat().st_mode & 0o777 == 0o600
        refused = await run(ASK, str(path))
        assert b"PermissionError" in refused
        path.chmod(0o666)
        for folder in (
            tmp_path,
            *tmp_path.parents[:-2],
        ):  # with those of a worker, below the folder of all temporary files
            folder.chmod(0o755)
        refused = await run(ASK, str(path))
        assert refused.startswith(b"HTTP/1.1 403 "), refused
        assert b"foreign_user" in refused


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Host: localhost", 200),
        ("Host: rebound.example", 421),
        ("Host: localhost\r\nOrigin: https://foreign.example", 403),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site", 403),
    ],
)
async def test_a_page_that_reaches_the_socket_through_a_program_is_refused(
    tmp_path: Path, header: str, status: int
) -> None:
    async with serving_machine(tmp_path, routes):
        reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET_NAME)
        writer.write(f"GET /who HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n".encode())
        assert (await reader.read()).startswith(f"HTTP/1.1 {status} ".encode())
        writer.close()


async def test_aiohttp_is_loaded_when_the_first_one_connects(tmp_path: Path) -> None:
    lines = (await run(LAZY, str(tmp_path))).decode().split("\n")
    assert lines[:3] == ["False", "HTTP/1.1 404 Not Found", "True"]


async def run(program: str, argument: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, argument), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return (await process.communicate())[0]


async def test_a_socket_that_a_killed_service_left_is_replaced_and_the_end_removes_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET_NAME))
    with pytest.raises(NotRunning):
        await call_service(tmp_path, "status", {})
    async with serving_machine(tmp_path, routes):
        assert "nothing" in (await call_service(tmp_path, "status", {}))["error"]
    assert not (tmp_path / SOCKET_NAME).exists()
    with pytest.raises(NotRunning):
        await call_service(tmp_path / "nowhere", "status", {})


async def test_a_path_longer_than_an_address_of_a_socket_is_reached(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long-" * 20) / ("longer-" * 15)
    data_dir.mkdir(parents=True)
    async with serving_machine(data_dir, routes):
        assert "nothing" in (await call_service(data_dir, "status", {}))["error"]


@pytest.mark.parametrize("answer", [b'{"error": "a request is one line of JSON"}\n', b"", b"HTTP/1.1 200 OK\r\n\r\nno"])
async def test_a_service_of_another_version_is_named(tmp_path: Path, answer: bytes) -> None:
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(old, tmp_path / SOCKET_NAME):
        error = (await call_service(tmp_path, "status", {}))["error"]
        assert ("another version" in error) == bool(answer)
        with pytest.raises(ConnectionError):
            await attach_console(tmp_path, {"person": "jane"})


async def test_an_abandoned_question_ends_its_thread(tmp_path: Path) -> None:
    """Ctrl-C on a command leaves at once, though the service has not answered."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return web.Response()

    async with serving_machine(tmp_path, lambda: [Route("POST", "/v1/machine/operations/{name}", slow)]):
        question = asyncio.create_task(call_service(tmp_path, "backup", {}))
        await asyncio.wait_for(asked.wait(), 60)
        question.cancel()
        await asyncio.wait_for(left.wait(), 60)
        await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 60)
