"""What every channel promises to the service, whatever its platform can do."""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
from typing import Protocol

import pytest

from agent.blocks import Ask, Final, Text, View
from agent.messages import Kind, Message, Thread
from channels.base import Channel, CommandInfo
from contracts.recording import Box, Memory, Rows, until

LACKS = frozenset(["prefix"])
"""What a rig may declare in `lacks`: "prefix" (a message is never a command, which comes another way)."""


class ChannelRig(Protocol):
    """A channel that listens into `box`, and a person who writes to the bot in a direct chat.

    `can` has the abilities of the platform that the suite asks for: "edits" (a message can be changed in place),
    "buttons" (options of a question are buttons, which `buttons` lists), "documents" (the rest of a long answer is a
    file) and "once" (a repeated post is recognised, and shown once).
    """

    name: str
    can: frozenset[str]
    box: Box

    @property
    def channel(self) -> Channel:
        """The current channel: a new one after a restart."""

    async def say(self, text: str) -> Message:
        """A person writes; returns the received message."""

    def thread(self) -> Thread:
        """The conversation in which `say` writes."""

    def visible(self) -> list[str]:
        """Return the bot's visible messages (without separate messages: the whole text)."""

    def buttons(self) -> list[str]:
        """The labels under the bot's last message."""

    async def leave(self) -> None:
        """Stop the service's process: the channel is closed, and the platform goes on."""

    async def back(self) -> None:
        """Start it again: a new channel with the same `box`."""


def lacks_of(rig: ChannelRig) -> frozenset[str]:
    """Return what the channel does not have of what all others have; a rig that says nothing has everything."""
    return frozenset(getattr(rig, "lacks", ()))


async def settled(rig: ChannelRig, text: str) -> str:
    """Return everything visible, as soon as it contains `text`."""
    await until(lambda: text in "\n".join(rig.visible()), what=text)
    return "\n".join(rig.visible())


def plain(text: str) -> str:
    """Return the text as a person reads it, without the zero-width characters that prevent mentions."""
    return re.sub("[\u200b\u2060\ufeff]", "", unicodedata.normalize("NFC", text))


@pytest.mark.asyncio
class ChannelContract:
    """A subclass has the async fixture `rig`."""

    async def test_a_message_arrives_with_thread_author_and_text(self, rig: ChannelRig) -> None:
        message = await rig.say("what is new?")
        assert (message.text, message.kind, message.thread) == ("what is new?", Kind.CHAT, rig.thread())
        assert message.thread.channel == rig.name == rig.channel.name
        assert message.addressed
        assert message.private
        assert message.author.id
        assert not message.author.bot
        assert not message.author.guest
        assert abs(message.time - time.time()) < 5
        known = await rig.channel.enrich(message, 10)
        assert known.author.name
        assert (known.key, known.text, known.quotes) == (message.key, message.text, ())  # a direct chat already exists

    async def test_events_have_unique_keys(self, rig: ChannelRig) -> None:
        first, second = await rig.say("same"), await rig.say("same")
        assert first.key != second.key
        assert len(rig.box.messages) == 2

    async def test_many_messages_arrive_complete_and_in_order(self, rig: ChannelRig) -> None:
        texts = [f"message {number} 完 😀 <b>&amp;</b> `x`" for number in range(20)]
        for text in texts:
            await rig.say(text)
        assert [message.text for message in rig.box.messages] == texts

    async def test_a_message_that_cannot_be_stored_is_redelivered(self, rig: ChannelRig) -> None:
        rig.box.broken = True
        asked = asyncio.create_task(rig.say("keep me"))
        await until(lambda: rig.box.offered >= 2)
        assert not rig.box.messages
        rig.box.broken = False
        assert (await asked).text == "keep me"

    async def test_a_command_arrives_without_its_prefix(self, rig: ChannelRig) -> None:
        command = (Kind.CHAT, "!Stop now") if "prefix" in lacks_of(rig) else (Kind.COMMAND, "stop now")
        for text, expected in (("!Stop now", command), ("! stop", (Kind.CHAT, "! stop"))):
            message = await rig.say(text)
            assert (message.kind, message.text) == expected
        assert (await rig.say("/etc/hosts is odd")).kind is Kind.CHAT

    async def test_commands_can_be_announced_again(self, rig: ChannelRig) -> None:
        for _ in range(2):
            await rig.channel.announce([CommandInfo("help", "What I can do"), CommandInfo("stop", "Stop the work")])

    async def test_a_reply_can_be_seen(self, rig: ChannelRig) -> None:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Here I am."))
        await settled(rig, "Here I am.")

    async def test_a_reply_without_streaming_is_posted(self, rig: ChannelRig) -> None:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Only this."))
        assert (await settled(rig, "Only this.")).strip() == "Only this."

    async def test_a_second_finish_changes_nothing(self, rig: ChannelRig) -> None:
        reply = rig.channel.reply(rig.thread(), Memory())
        for _ in range(3):
            await reply.finish(Final("Said once."))
        assert (await settled(rig, "Said once.")).count("Said once.") == 1

    async def test_a_question_and_its_options_can_be_read_everywhere(self, rig: ChannelRig) -> None:
        view = View()
        view.add(Ask("ask-1", "Which colour?", ("red", "blue")))
        await rig.channel.reply(rig.thread(), Memory()).finish(view.final())
        seen = await settled(rig, "Which colour?")
        options = rig.buttons() if "buttons" in rig.can else re.findall("red|blue", seen)
        assert options == ["red", "blue"]

    async def test_a_long_reply_shows_each_word_once_and_in_order(self, rig: ChannelRig) -> None:
        words = [f"word{number}" for number in range(2000)]
        await rig.channel.reply(rig.thread(), Memory()).finish(Final(" ".join(words)))
        await settled(rig, words[-1])
        assert " ".join(rig.visible()).split() == words
        messages = rig.visible()[:-1] if "documents" in rig.can else rig.visible()
        assert all(len(text) <= rig.channel.limits.text_limit for text in messages)

    async def test_code_and_tables_are_not_broken_across_messages(self, rig: ChannelRig) -> None:
        code = "\n".join(f"print({number}, 'some more text to fill the line up')" for number in range(150))
        rows = "\n".join(f"| {number} | value {number} |" for number in range(300))
        text = f"# Head\n\n```python\n{code}\n```\n\n| n | v |\n|---|---|\n{rows}\n\nThe end, 完. <@U1> @everyone"
        await rig.channel.reply(rig.thread(), Memory()).finish(Final(text))
        seen = plain(await settled(rig, "The end"))
        assert re.findall(r"print\((\d+),", seen) == [str(number) for number in range(150)]
        assert re.findall(r"value (\d+)", seen) == [str(number) for number in range(300)]
        assert "完. <@U1> @everyone" in seen

    async def test_a_final_that_ends_in_the_middle_of_a_fence_is_shown(self, rig: ChannelRig) -> None:
        lines = "\n".join(f"line {number} of 词" for number in range(400))
        await rig.channel.reply(rig.thread(), Memory()).finish(Final(f"Look:\n\n```py\n{lines}"))
        seen = await settled(rig, "line 399")
        assert re.findall(r"line (\d+)", seen) == [str(number) for number in range(400)]

    async def test_a_restarted_process_edits_the_messages_it_had_posted(self, rig: ChannelRig) -> None:
        posts = Memory()
        first = rig.channel.reply(rig.thread(), posts)
        first.show(Text("Half a"))
        if "edits" in rig.can:
            await settled(rig, "Half a")
        await first.close()
        await rig.leave()
        await rig.back()
        again = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
        again.show(Text("Half a sentence"))
        await again.finish(Final("Half a sentence is better than none."))
        seen = await settled(rig, "better than none")
        assert seen.count("better than none") == 1
        if "edits" in rig.can:
            assert len(rig.visible()) == 1
        await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(
            Final("Half a sentence is better than none.")
        )
        assert "\n".join(rig.visible()).count("better than none") == 1

    async def test_a_post_of_unknown_outcome_is_repeated(self, rig: ChannelRig) -> None:
        await rig.channel.reply(rig.thread(), Memory(rows=Rows({0: None}))).finish(Final("Perhaps twice."))
        seen = await settled(rig, "Perhaps twice.")
        assert seen.count("Perhaps twice.") == 1
        if "once" not in rig.can:
            assert seen.strip() != "Perhaps twice."
            assert re.search("repeat|second time|seen this already", seen)
        else:
            assert seen.strip() == "Perhaps twice."
