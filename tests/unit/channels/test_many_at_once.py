"""Many people at once on every platform: all answers come, and no call is refused twice in a row.

A refusal names a wait. Two in a row would mean that it was not kept, or that the first call after it came with others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from agent.blocks import Final, Step, Text
from agent.messages import Message
from agent.setting import Secret
from bench.platforms import PLATFORMS, Crowd, count_refusals
from channels.base import ChannelError, Health
from tests.fakes.server import until
from tests.support.recording_inbox import Box, Memory, Service

PEOPLE = 40
WORDS = "One. Two. Three."


@asynccontextmanager
async def crowd(name: str) -> AsyncIterator[tuple[Crowd, Service, Box]]:
    """Start a platform and its channel with the settings of a new installation."""
    module = import_module(f"channels.{name}")
    async with PLATFORMS[name]() as fake:
        given = fake.limited()
        kinds = {each.name: str(each.type) for each in fields(module.Settings)}
        values = {key: Secret(str(value)) if kinds[key] == "Secret" else value for key, value in given.items()}
        box = Box()
        service = Service(lambda: module.connect(module.Settings(**values)), box)
        await service.begin()
        try:
            await until(lambda: fake.connected() and service.channel.readiness().health is Health.READY)
            yield fake, service, box
        finally:
            await service.end()


async def answer(service: Service, message: Message, number: int) -> None:
    """Answer as a turn and the outbox do."""
    posts = Memory(f"r{number}")
    reply = service.channel.reply(message.thread, posts, to=message.id, asker=message.author.id)
    reply.show(Step("s1", "Reading", "running"))
    for word in WORDS.split():
        reply.show(Text(f"{word} "))
        await asyncio.sleep(0.3)
    while True:
        try:
            await reply.finish(Final(WORDS))
        except ChannelError as error:
            await reply.close()
            await asyncio.sleep(max(error.after, 0.1))
            reply = service.channel.reply(
                message.thread, Memory(posts.key, posts.rows), to=message.id, asker=message.author.id
            )
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "factor"),
    [
        *((name, 1.0) for name in sorted(PLATFORMS)),
        *(
            (name, 0.5) for name in ("dingtalk", "discord", "feishu", "slack")
        ),  # Telegram does not say which limit it was
    ],
)
async def test_no_call_is_refused_twice_in_a_row(name: str, factor: float) -> None:
    """Also where the platform allows half of what it documents."""
    async with crowd(name) as (fake, service, box):
        fake.enforce(factor)
        for person in range(PEOPLE):
            fake.write(person, "tell me")
        await until(lambda: len(box.messages) == PEOPLE, 120, "all questions")
        await asyncio.gather(*(answer(service, message, n) for n, message in enumerate(box.messages)))
        assert [list(fake.read(person)) for person in range(PEOPLE)] == [[WORDS]] * PEOPLE
        counted: dict[str, Any] = fake.refusals()
        assert counted["again"] == 0, counted


def test_the_count_tells_calls_under_way_together_from_those_in_a_row() -> None:
    def counted(*calls: tuple[float, bool]) -> dict[str, int]:
        return count_refusals((("m", ""), at, refused) for at, refused in calls)

    assert counted((0.0, True), (0.1, True), (5.0, False), (6.0, True)) == {"total": 3, "again": 0}
    assert counted((0.0, True), (5.0, True)) == {"total": 2, "again": 1}
