"""The probes of a running service: what breaks is named, and what works again is forgotten."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import Fault, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.all_platforms import AllPlatforms
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
    async with asyncio.timeout(120):
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


async def test_models_that_cannot_be_reached_are_named_although_nobody_asks_anything(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(http={"listen": "127.0.0.1:0"})
    await wait_for(service)
    stopped = time.time()
    await model.stop()
    found = await wait_for(service, "models")
    assert "127.0.0.1" in found["troubles"][0]["why"]
    assert datetime.fromisoformat(found["troubles"][0]["since"]).timestamp() > stopped - 31
    code, text = await service.fawn("status", "--json")
    assert (code, json.loads(text)["troubles"]) == (1, found["troubles"])
    code, text = await service.fawn("status")
    assert f"models since {found['troubles'][0]['since']}: No server of a model can be reached" in text
    await model.start()
    await wait_for(service)
    telegram.send(ask(text="back again"))
    await telegram.wait(JANE, "back again")


async def test_a_message_that_waits_too_long_is_named(telegram: FakeTelegram, start: Start) -> None:
    """One turn at a time: the next message of another chat waits until it is over."""
    service = await start(http={"listen": "127.0.0.1:0"}, limits={"live_turns": 1, "attempts": 50})
    await wait_for(service)
    telegram.send(ask(text="slow", delay_ms=600_000))
    await until(lambda: bool(service.rows("SELECT 1 FROM runs")), what="the turn")
    telegram.send(ask(text="never"), chat=78)
    await until(lambda: len(service.rows("SELECT 1 FROM conversations")) == 2, what="the second message")
    found = await wait_for(service, "queue")
    assert "has waited for" in found["troubles"][0]["why"]


async def test_every_channel_says_that_it_is_deaf(tmp_path: Path) -> None:
    """Their connections stay open and nothing comes, as behind a router that forgot them; the intervals are the usual
    ones."""
    async with AllPlatforms.open(tmp_path, http={"listen": "127.0.0.1:0"}) as service:
        await wait_for(service)
        before = len(service.log())
        for name in service.names:
            rig = service.rigs[name]
            if name == "telegram":
                service.telegram.faults.append(Fault("hang", "getUpdates", times=-1))
                service.telegram.send(
                    ask(text="the last one")
                )  # it ends the poll that waits; the next one hears nothing
            else:
                rig.wire.deafen()
        names = [f"{name}.down" for name in service.names]
        try:
            await until(lambda: all(name in service.log()[before:] for name in names), 90)
        except TimeoutError:
            raise AssertionError(service.log()[before:]) from None
