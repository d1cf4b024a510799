"""The probes of a running service: what breaks is named, and what works again is forgotten."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import aiohttp

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import Fault, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask


def address_of(service: Service) -> str:
    found = re.findall(r"http\.listening address=(\S+) port=(\d+)", service.log())
    return f"http://{found[-1][0]}:{found[-1][1]}" if found else ""


async def ready(service: Service) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as monitor, monitor.get(f"{address_of(service)}/readyz") as answer:
        return answer.status, await answer.json()


async def wait_for(service: Service, *parts: str) -> dict[str, Any]:
    """Wait until exactly these parts are in trouble; return the probe's content."""

    async def look() -> dict[str, Any] | None:
        status, found = await ready(service)
        assert status == (503 if found["troubles"] else 200)
        return found if [each["part"] for each in found["troubles"]] == [*parts] else None

    await until(lambda: bool(address_of(service)), what="the listener")
    async with asyncio.timeout(60):
        while not (found := await look()):
            await asyncio.sleep(0.2)
    return found


async def test_readiness_follows_the_platform(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(http={"listen": "127.0.0.1:0"})
    await wait_for(service)
    code, text = await service.fawn("status", "--json")
    assert (code, json.loads(text)["troubles"]) == (0, [])
    telegram.faults.append(Fault("error", "getUpdates", times=-1, code=502))
    telegram.wake()
    found = await wait_for(service, "telegram")
    assert found["troubles"][0]["why"]
    code, text = await service.fawn("status", "--json")
    assert (code, json.loads(text)["troubles"]) == (1, found["troubles"])
    telegram.faults.clear()
    await wait_for(service)
    telegram.send(ask(text="still here"))
    await telegram.wait(JANE, "still here")
    assert await service.stop() == 0


async def test_a_service_without_an_address_does_not_listen(start: Start) -> None:
    service = await start()
    assert not address_of(service)
