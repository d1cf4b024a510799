"""Many answers while Slack fails at random: each is shown once and complete."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from agent.blocks import Final, Text
from agent.messages import Thread
from channels.base import OutcomeUnknown, TryLater
from tests.fakes.slack import JANE, OPS, TEAM
from tests.support.recording_inbox import Memory, Rows
from tests.support.rigs.registry import deliver, ready, until
from tests.support.rigs.slack import SlackRig

METHODS = ("chat.startStream", "chat.appendStream", "chat.stopStream", "chat.update", "chat.postMessage")
LOOKS = ("conversations.replies", "conversations.history")


async def answer(rig: SlackRig, number: int, chance: random.Random) -> tuple[list[str], str]:
    """Deliver an answer in a thread or a direct chat, with restarts; return the visible and the expected text."""
    channel = OPS if number % 2 else f"D{number}"
    rig.server.conversation(channel)
    asked = rig.server.send("tell me", channel, silent=True)
    thread = Thread("slack", TEAM, channel, asked if number % 2 else "")
    rows = Rows()
    reply = rig.channel.reply(thread, Memory(f"r{number}", rows), to=asked, asker=JANE)
    words = [f"w{number}-{count} " for count in range(40)]
    for count, word in enumerate(words):
        reply.show(Text(word, "first" if count < 20 else "second"))
        await asyncio.sleep(0.02)
    text = "".join(words[20:]).strip() + ("\n\n" + "long " * 2500 if number % 5 == 0 else "")
    while True:
        try:
            await reply.finish(Final(text))
            break
        except (TryLater, OutcomeUnknown) as error:
            if chance.random() < 0.5:
                await reply.close()
                reply = rig.channel.reply(thread, Memory(f"r{number}", rows), to=asked, asker=JANE)
            await asyncio.sleep(min(1.0, getattr(error, "after", 0.1)))
    shown = rig.server.visible(channel, asked if number % 2 else None)
    return " ".join(one.text for one in shown).split(), text


# Case 70 of docs/cases.md
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_answer_is_shown_once_despite_random_faults(tmp_path: Path, seed: int) -> None:
    async with SlackRig.start(tmp_path, rate_factor=50.0) as rig:
        await ready(rig)
        chance = rig.server._random = random.Random(seed)
        for method in (*METHODS, *LOOKS):
            rig.server.fault("error", method, times=-1, chance=0.08, code=500)
            rig.server.fault("drop", method, times=-1, chance=0.08, after=True)
            rig.server.fault("drop", method, times=-1, chance=0.08)
            rig.server.fault("error", method, times=-1, chance=0.04, code=500, after=True)
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(answer(rig, number, chance) for number in range(16)))
        for seen, text in answers:
            assert seen == text.split()


@pytest.mark.parametrize("method", ["chat.stopStream", "chat.update", "conversations.replies"])
@pytest.mark.parametrize("kind", ["error", "drop"])
async def test_a_post_found_by_lookup_is_remembered(tmp_path: Path, method: str, kind: str) -> None:
    """A post whose answer was lost is looked up; a later failure does not lose it again."""
    async with SlackRig.start(tmp_path) as rig:
        await ready(rig)
        message, posts = await rig.say("work", 7), Memory()
        rig.server.fault("drop", "chat.startStream", after=True)
        reply = rig.channel.reply(message.thread, posts, to=message.id, asker=JANE)
        rig.server.fault(kind, method)  # type: ignore[arg-type]  # one of the fake's words
        reply.show(Text("Half"))
        await until(lambda: rig.visible(7))
        await reply.close()
        await deliver(rig, Final("The whole."), posts, 7)
        assert rig.visible(7) == ["The whole."]
