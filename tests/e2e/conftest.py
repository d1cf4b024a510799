"""Fixtures of the end-to-end tests: the fake platform, the fake model, and the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.support.engines import need_bubblewrap
from tests.support.service_process import Service

Start = Callable[..., Awaitable[Service]]


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


@pytest.fixture
async def start(
    request: pytest.FixtureRequest, tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> AsyncIterator[Start]:
    """`await start(section={…})` returns a running service; the end of the test kills it.

    It has a sandbox in a test with the fixture `bubblewrap`.
    """
    services: list[Service] = []

    async def begin(**settings: Any) -> Service:
        if "bubblewrap" in request.fixturenames:
            settings = {"sandbox": {}, **settings}
        service = Service(tmp_path, telegram, model, settings)
        services.append(service)
        await service.start()
        return service

    yield begin
    for service in services:
        await service.end()


@pytest.fixture
def bubblewrap() -> None:
    """Require bubblewrap, for tests that run commands."""
    need_bubblewrap()
