"""kill -9 between an event and its answer: the next process answers by what the event brought, until that ends."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.support.all_platforms import AllPlatforms
from tests.support.rigs.discord import DiscordRig
from tests.support.rigs.slack import SlackRig
from tests.support.service_process import ask

KEY = "k" * 40
WORDS = "the answer"


async def ask_and_kill(service: AllPlatforms, name: str) -> None:
    """Ask by an event with a handle, and kill the service once it is stored and nothing is answered yet."""
    rig = service.rigs[name]
    if isinstance(rig, SlackRig | DiscordRig):
        answering = "response_url" if isinstance(rig, SlackRig) else "editOriginal"
        rig.server.fault("error", answering, times=-1, code=503)
        rig.command("status")
        await until(lambda: rig.server.calls_of(answering), what="a try to answer")
        await service.kill()
        rig.server.clear_faults()
        rig.server.calls.clear()
    else:
        rig.mutter(ask(text=WORDS, delay_ms=4000))
        await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='running'"), what="the turn")
        await service.kill()
    [(token, until_, _)] = service.rows("SELECT token, until, message FROM reply_handles")
    assert token.startswith("sealed:")
    assert until_ > time.time()


@pytest.mark.parametrize("name", ["slack", "wecom"])  # as a command gives it, and as a message does
async def test_a_handle_survives_a_kill(tmp_path: Path, name: str) -> None:
    async with AllPlatforms.open(tmp_path, name, encryption={"key": KEY}) as service:
        await ask_and_kill(service, name)
        await service.start()
        await until(service.rigs[name].used_handle, what="an answer by the handle")
        await service.quiet()


@pytest.mark.parametrize("name", ["slack", "wecom"])
async def test_a_handle_that_ended_meanwhile_is_not_used(tmp_path: Path, name: str) -> None:
    async with AllPlatforms.open(tmp_path, name, encryption={"key": KEY}) as service:
        await ask_and_kill(service, name)
        with sqlite3.connect(service.data / "fawn.db") as store:
            store.execute("UPDATE reply_handles SET until=?", (time.time() - 1,))
        await service.start()
        await service.quiet()
        assert service.rigs[name].visible()
        assert not service.rigs[name].used_handle()
