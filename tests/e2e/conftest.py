"""Fixtures of the end-to-end tests: the fake platform, the fake model, and the service."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.model import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.support.engines import need_bubblewrap
from tests.support.postgres import drop_databases_of
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


@pytest.fixture(scope="module")
def world_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a world: of a service that the tests of a module share."""
    folder = tmp_path_factory.mktemp("world")
    yield folder
    drop_databases_of(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(request: pytest.FixtureRequest, world_folder: Path) -> AsyncIterator[Service]:
    """A world: a running service that the tests of a module share, with the settings `WORLD` of the module.

    No test kills it. Each has a chat or a person of its own there (`number`), and reads the rows of its conversation.
    The module has the marker `asyncio(loop_scope="module")`, and so have its fixtures.
    """
    async with (
        FakeTelegram() as telegram,
        FakeModel() as model,
        Service(world_folder, telegram, model, request.module.WORLD) as service,
    ):
        yield service


@pytest.fixture
def number(request: pytest.FixtureRequest) -> int:
    """A number of the test's own: of its topic, its chat or its person in a world."""
    return 1000 + zlib.crc32(request.node.nodeid.encode()) % 1_000_000_000


@pytest.fixture
def bubblewrap() -> None:
    """Require bubblewrap, for tests that run commands."""
    need_bubblewrap()
