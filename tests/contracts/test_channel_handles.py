"""Contract of every channel: what an event brings to answer it by survives a restart, ends, and is told to nobody."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest

from agent.blocks import Final
from agent.messages import Message
from tests.support.rigs.registry import RIGS, Memory, Rig, demanded, settled, until

BARE = sorted(name for name, kind in RIGS.items() if "handles" not in kind.can)


async def ask_and_restart(rig: Rig) -> Message:
    """A person asks, and the process ends between the commit and the answer; another one begins."""
    message = await rig.ask_by_handle("hello")
    await until(rig.felt)
    await rig.leave()
    await rig.back()
    return message


async def answer(rig: Rig, message: Message, posts: Memory) -> None:
    reply = rig.channel.reply(message.thread, posts, to=message.id, asker=message.author.id)
    await reply.finish(Final("The answer."))
    await reply.close()


@demanded("handles")
async def test_a_handle_answers_after_a_restart(rig: Rig) -> None:
    message = await ask_and_restart(rig)
    handle = message.reply_handle
    assert handle
    assert time.time() < handle.until < time.time() + 2 * 86_400
    await answer(rig, message, Memory(handle=handle))
    await until(rig.used_handle)


@demanded("handles")
async def test_a_handle_that_has_ended_is_not_used(rig: Rig) -> None:
    message = await ask_and_restart(rig)
    assert message.reply_handle
    await answer(rig, message, Memory(handle=replace(message.reply_handle, until=time.time() - 1)))
    await settled(rig, "The answer.")
    await rig.leave()  # nothing goes on in the background
    assert not rig.used_handle()


@demanded("handles")
async def test_the_token_is_neither_stored_with_the_message_nor_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    message = await ask_and_restart(rig)
    assert message.reply_handle
    token = message.reply_handle.token
    await answer(rig, message, Memory(handle=message.reply_handle))
    await until(rig.used_handle)
    assert token not in message.dump().decode() + repr(message)
    ours = [each for each in caplog.records if not each.name.startswith(("aiohttp", "tests", "asyncio"))]
    assert not [each.getMessage() for each in ours if token in each.getMessage()]


@pytest.mark.parametrize("rig", BARE, indirect=True)
async def test_a_platform_whose_events_bring_none_has_none(rig: Rig) -> None:
    assert (await rig.say("hello")).reply_handle is None
