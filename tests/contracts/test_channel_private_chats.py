"""Contract of the channels that may write to a person first: where an answer goes whose chat was closed to the bot."""

from __future__ import annotations

from agent.blocks import Final
from channels.base import PrivateChatOpener
from tests.support.rigs.registry import Memory, Rig, demanded, settled


async def test_a_platform_where_a_bot_may_write_first_says_so(rig: Rig) -> None:
    assert isinstance(rig.channel, PrivateChatOpener) == ("private_chats" in rig.can)


@demanded("private_chats", "topics")
async def test_a_private_chat_is_opened_with_who_asked_in_a_group(rig: Rig) -> None:
    await rig.say("hello")  # Telegram lets no bot write to a stranger
    asked = await rig.say("what is it?", 7)
    assert isinstance(rig.channel, PrivateChatOpener)
    for _ in range(2):
        chat = await rig.channel.open_private_chat(asked.author.id, asked.thread)
    await rig.channel.reply(chat, Memory()).finish(Final("the answer"))
    await settled(rig, "the answer")
    assert not any("the answer" in text for text in rig.visible(7))
