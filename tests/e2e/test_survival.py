"""Irregular file names, damaged rows and a paused process neither end the service nor repeat a turn."""

from __future__ import annotations

import asyncio
import signal
import sqlite3

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash, said

OUT = "/mnt/user-data/outputs"
STOPPED_SECONDS = 35  # a suspended laptop, a paused container


def write(service: Service, sql: str) -> None:
    """Change the database from outside."""
    connection = sqlite3.connect(service.data / "fawn.db", isolation_level=None)
    connection.execute(sql)
    connection.close()


@pytest.mark.usefixtures("bubblewrap")
async def test_a_file_name_that_is_not_utf8_is_reported_once(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    command = f"cd {OUT}; touch \"$(printf '\\377.txt')\"; echo fine > fine.txt"
    telegram.send(ask(steps=[bash(command)], text="unpacked"))
    shown = await telegram.wait(JANE, "unpacked")
    await service.quiet()
    assert next(m.text for m in telegram.visible(JANE) if m.id == shown.id).count("Not sent: ") == 1
    assert said(telegram, JANE)[1:] == ["fine.txt"]
    telegram.send(ask(steps=[bash("true")], text="nothing new"))
    await telegram.wait(JANE, "nothing new")
    await service.quiet()
    assert said(telegram, JANE)[2:] == ["nothing new"]
    assert await service.stop() == 0


async def test_a_paused_process_continues_its_turns(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    telegram.send(ask(text="slept well", delay_ms=2000))
    await until(lambda: model.requests(), what="the model call")
    assert service.process
    service.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(STOPPED_SECONDS)
    service.process.send_signal(signal.SIGCONT)
    await telegram.wait(JANE, "slept well")
    await service.quiet()
    assert said(telegram, JANE) == ["slept well"]
    assert service.rows("SELECT attempt, state FROM runs") == [(1, "done")]
    assert len(model.requests()) == 1


@pytest.mark.parametrize("running", [True, False])
async def test_damaged_messages_do_not_block_others(telegram: FakeTelegram, start: Start, running: bool) -> None:
    """A chat message, a command, and a message with an undelivered reply, damaged by another program."""
    service = await start()
    for chat in (500, 501, 502):
        telegram.send(ask(text=f"before {chat}"), chat=chat)
        await telegram.wait(chat, f"before {chat}")
    await service.quiet()
    if not running:
        assert await service.stop() == 0
    for chat, kind, payload in ((500, "chat", "'{'"), (501, "command", "x'ff'")):
        write(
            service,
            "INSERT INTO inbox(key, conversation, kind, author, payload, ready, received)"  # noqa: S608 — constants
            f" SELECT 'damaged' || key, key, '{kind}', '', {payload}, 0, unixepoch() FROM conversations"
            f" WHERE key LIKE '%/{chat}/%'",
        )
    write(
        service,
        "INSERT INTO outbox(key, kind, thread, payload, created) VALUES ('damaged', 'say', 'x', '', unixepoch())",
    )
    write(service, "UPDATE conversations SET pending=1, ready=0 WHERE key LIKE '%/500/%'")
    if not running:
        await service.start()
    telegram.send("/help", chat=501)
    for chat in (500, 501, 502):
        telegram.send(ask(text=f"after {chat}"), chat=chat)
        await telegram.wait(chat, f"after {chat}")
    await telegram.wait(500, "send it again")
    await telegram.wait(501, "/stop")
    await service.quiet()
    code, listed = await service.fawn("dead", "list")
    assert code == 0
    assert len(listed.splitlines()) >= 3
    assert await service.stop() == 0
