"""`/new` while work continues, and `/stop` for all of it."""

from __future__ import annotations

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, said


async def test_new_names_the_work_that_continues_and_stop_ends_all_of_it_once(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(f"Hello {ask(text='hello')}")
    await telegram.wait(JANE, "hello")
    await service.quiet()
    before = len(model.requests())
    telegram.send("Plot the **visits** " + ask(text="never", delay_ms=30_000, id="1"))
    await until(lambda: len(model.requests()) > before, what="the first model call")
    telegram.send(ask(text="waits in the old conversation", id="2"))
    telegram.send("/new")
    shown = await telegram.wait(JANE, "A fresh start")
    assert "Still working on “Plot the visits" in shown.text
    telegram.send(ask(text="never", delay_ms=30_000, id="3"))
    await until(lambda: len(model.requests()) == before + 2, what="the call of the new conversation")
    telegram.send("/status")
    await telegram.wait(JANE, "All is well. Working on 2 things here for")
    telegram.send("/stop")
    await until(lambda: sum("Stopped." in text for text in said(telegram, JANE)) == 2, what="the end of both replies")
    await service.quiet()
    assert [text for text in said(telegram, JANE) if "Stopped." in text] == ["Stopped."] * 2
    assert len(model.requests()) == before + 2
    assert service.rows("SELECT state FROM runs ORDER BY id") == [("done",), ("stopped",), ("stopped",)]
