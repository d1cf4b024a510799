"""Variables by which libraries send people's words elsewhere have no effect unless the configuration names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service

WORD = "quetzal"


class TracingService(Service):
    """A service whose environment asks for tracing to a server of the test."""

    forked = False  # the libraries read their environment once

    @classmethod
    def make(cls, folder: Path, telegram: FakeTelegram, model: FakeModel, port: int, **settings: Any) -> TracingService:
        service = cls(folder, telegram, model, {"sandbox": {"provider": "none"}, **settings})
        service.more_environment = {
            "LANGSMITH_TRACING": "true",
            "LANGCHAIN_TRACING_V2": "true",
            "LANGSMITH_ENDPOINT": f"http://127.0.0.1:{port}",
            "LANGSMITH_API_KEY": "lsv2_pt_0123456789abcdef0123456789abcdef_0123456789",
            "OPENAI_LOG": "debug",
        }
        return service


@pytest.mark.parametrize("allowed", [(), ("LANGSMITH_TRACING",)])
async def test_words_go_to_a_tracing_service_only_where_the_configuration_names_its_switch(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, allowed: tuple[str, ...]
) -> None:
    got: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        got.append(await request.read())
        return web.json_response({})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    service = TracingService.make(tmp_path, telegram, model, port, library_switches=list(allowed))
    try:
        await service.start()
        telegram.send(f"I own a {WORD}")
        await telegram.wait(JANE, f"own a {WORD}", seconds=60)  # it imports everything first
        await service.quiet()
        if allowed:
            await until(lambda: got, what="what the switch sends")
        await service.stop()  # what waits to be sent is sent now
        assert bool(got) == bool(allowed)
        assert WORD not in service.log()
        code, text = await service.fawn("check")
        assert "OPENAI_LOG is set, and I ignore it: it writes requests and answers to the log" in text, (code, text)
        shown = "`library_switches` allows it" if allowed else "I ignore it: it sends every request"
        assert f"LANGSMITH_TRACING is set{' and ' if allowed else ', and '}{shown}" in text
    finally:
        await service.kill()
        await runner.cleanup()
