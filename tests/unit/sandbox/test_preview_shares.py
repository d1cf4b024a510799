"""Silent clients and a hostile page do not affect other people's links."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from yarl import URL

from sandbox.base import Sandbox
from sandbox.network import preview as limits
from sandbox.network.preview import PreviewServer
from tests.fakes.server import until
from tests.unit.sandbox.test_preview import SETTINGS, disk, person, sandbox

__all__ = ["disk", "person", "sandbox"]  # the fixtures


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_silent_clients_do_not_block_links(sandbox: Sandbox, address: str) -> None:
    """Neither those of another address nor, as behind a TLS proxy, those of the same one."""
    async with PreviewServer(SETTINGS) as preview:
        link = URL(await preview.make_link(sandbox, 8000))
        held = []
        for _ in range(limits.MAX_SILENT_CONNECTIONS * 3):
            held.append(await asyncio.open_connection(link.host, link.port, local_addr=(address, 0)))
        await until(lambda: len(preview._silent) == limits.MAX_SILENT_CONNECTIONS)
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.1", 0))
        async with aiohttp.ClientSession(connector=connector) as person, person.get(link) as answer:
            assert answer.status == 200
        assert len(preview._silent) <= limits.MAX_SILENT_CONNECTIONS
        closed = await asyncio.wait_for(held[0][0].read(), 60)
        assert closed == b""
        for _, writer in held:
            writer.close()


async def test_silent_clients_of_one_address_do_not_displace_others() -> None:
    async with PreviewServer(SETTINGS) as preview:
        port = preview._server.sockets[0].getsockname()[1]
        quiet = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(preview._silent) == 1)
        held = []
        for _ in range(limits.MAX_SILENT_CONNECTIONS * 2):
            held.append(await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0)))
        await until(lambda: len(preview._visitors) == limits.MAX_SILENT_CONNECTIONS)
        assert list(preview._silent.values()).count("127.0.0.1") == 1
        assert not quiet[0].at_eof()
        for _, writer in (*held, quiet):
            writer.close()


async def test_a_busy_link_does_not_block_others(sandbox: Sandbox, person: aiohttp.ClientSession) -> None:
    async with PreviewServer(SETTINGS) as preview:
        hostile, link = URL(await preview.make_link(sandbox, 8000)), await preview.make_link(sandbox, 8000)
        lines = f"GET {hostile.path}stream HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        held = []
        for _ in range(300):
            reader, writer = await asyncio.open_connection(hostile.host, hostile.port)
            writer.write(lines)
            held.append((reader, writer))
        await until(lambda: len(preview._visitors) == limits.MAX_REQUESTS_PER_LINK)
        for _ in range(3):
            async with person.get(link) as answer:
                assert answer.status == 200
        said = [asyncio.create_task(reader.read()) for reader, _ in held]
        await until(lambda: sum(task.done() for task in said) == 300 - limits.MAX_REQUESTS_PER_LINK)
        assert all(task.result().startswith(b"HTTP/1.1 503 Too many") for task in said if task.done())
        for _, writer in held:
            writer.close()
        await asyncio.wait(said)
        await until(lambda: not preview._visitors)  # also those that waited for a slot
        async with person.get(hostile) as answer:
            assert answer.status == 200
