"""Contract of every channel: incoming events. A rig's abilities select the tests.

Outgoing replies are in `test_channel_*.py`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from agent.blocks import Final
from agent.messages import Kind
from channels.base import CommandInfo, Receipt
from contracts.channel import LACKS, ChannelContract
from tests.support.rigs.base import ABILITIES
from tests.support.rigs.registry import DEMANDED, RIGS, Memory, Rig, demanded, heard, settled, until


class TestEveryChannel(ChannelContract):
    """The kit's suite on every channel."""


# ---------------------------------------------------------------- messages


@demanded("apology")
async def test_the_user_gets_one_notice_when_a_message_cannot_be_stored(rig: Rig) -> None:
    rig.box.broken = True
    asked = asyncio.create_task(rig.say("keep me"))
    await until(lambda: rig.box.offered >= 2)
    await until(rig.visible)
    assert len(rig.visible()) == 1
    assert "can't save" in rig.visible()[0]
    rig.box.broken = False
    assert (await asked).text == "keep me"


# Case 59 of docs/cases.md
@demanded("redelivery")
async def test_an_event_delivered_six_times_has_one_key(rig: Rig) -> None:
    message = await rig.say("once")
    for _ in range(5):
        rig.redeliver()
    await until(lambda: rig.box.receipts.count(Receipt.DUPLICATE) >= 5)
    assert rig.box.messages == [message]
    assert (await rig.say("and on")).text == "and on"


@demanded("wire", "working")
async def test_an_accepted_message_is_acknowledged_visibly_at_once(rig: Rig) -> None:
    before = rig.wire.count("any")
    await rig.say("hello")
    await until(lambda: rig.wire.count("any") > before, what="a sign of life")
    assert rig.wire.count("post") == 0
    assert rig.visible() == []


@demanded("wire", "topics")
async def test_an_ignored_message_is_not_acknowledged_visibly(rig: Rig) -> None:
    rig.box.refuses = lambda message: True
    rig.mutter("hello")
    await until(lambda: rig.box.receipts == [Receipt.IGNORED])
    await asyncio.sleep(0.1)  # one user lookup is allowed
    before = rig.wire.count("any")
    rig.mutter("hello, I said", 7, mention=True)
    await until(lambda: len(rig.box.receipts) >= 2)
    await asyncio.sleep(0.1)
    assert rig.wire.count("any") == before


# ---------------------------------------------------------------- threads


@demanded("topics")
async def test_a_mention_in_a_thread_addresses_the_bot_and_other_messages_do_not(rig: Rig) -> None:
    rig.mutter("lunch, anybody?", 5)
    message = await heard(rig, "sum this up", 5)
    assert (message.text, message.thread, message.kind) == ("sum this up", rig.thread(5), Kind.CHAT)
    assert message.addressed
    assert not message.private
    other = await heard(rig, "and this", 6)
    assert other.thread == rig.thread(6) != message.thread
    chatter = [known for known in rig.box.messages if known.text.startswith("lunch")]
    assert not [known for known in chatter if known.addressed]
    meant = [known.text for known in rig.box.messages if known.addressed]
    assert meant == ["sum this up", "and this"]  # each once, however many events the platform sends


@demanded("follow_up", "topics")
async def test_a_message_in_a_thread_may_count_without_a_mention(rig: Rig) -> None:
    opened = await rig.say("look into it", 5)
    await rig.channel.reply(opened.thread, Memory(), to=opened.id).finish(Final("It is done."))
    further = await rig.say("and now?", 5, mention=False)
    assert (further.text, further.thread) == ("and now?", opened.thread)
    assert further.follow_up
    assert not further.addressed


@demanded("earlier", "topics")
async def test_earlier_messages_of_a_thread_arrive_as_quotes(rig: Rig) -> None:
    rig.mutter("the beamer is broken", 5)
    rig.mutter("again? & <so on>", 5)
    message = await heard(rig, "who repairs it?", 5)
    quotes = (await rig.channel.enrich(message, 10)).quotes
    assert [quote.text for quote in quotes][-2:] == ["the beamer is broken", "again? & <so on>"]
    assert {quote.kind for quote in quotes} == {"earlier"}
    assert all(quote.author for quote in quotes)
    assert message.text not in [quote.text for quote in quotes]
    assert [quote.text for quote in (await rig.channel.enrich(message, 1)).quotes][-1:] == ["again? & <so on>"]
    assert (await rig.channel.enrich(message, 0)).quotes == ()


@demanded("earlier", "topics")
async def test_the_root_of_a_long_thread_comes_with_its_latest_messages_and_the_gap_between_them(rig: Rig) -> None:
    for number in range(8):
        rig.mutter(f"talk {number}", 5)
    message = await heard(rig, "what is this about?", 5)
    whole = (await rig.channel.enrich(message, 50)).quotes
    root, gap, *latest = (await rig.channel.enrich(message, 3)).quotes
    assert {quote.kind for quote in whole} == {"earlier"}
    assert (root, latest) == (whole[0], [*whole[-3:]])
    assert root.id == message.thread.topic
    assert gap.kind == "omitted"
    assert gap.text in ("", str(len(whole) - 4))


# ---------------------------------------------------------------- downtime


@demanded("kept")
async def test_events_during_downtime_are_delivered_once(rig: Rig) -> None:
    await absent(rig)


@demanded("catch_up")
async def test_missed_messages_are_read_from_the_history_once(rig: Rig) -> None:
    await absent(rig)


async def absent(rig: Rig) -> None:
    first = await rig.say("before")
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("My own words."))
    if "topics" in rig.can:
        await rig.say("before, in a thread", 5)
    await rig.leave()
    rig.mutter("missed 1")
    rig.mutter("missed 2")
    if "topics" in rig.can:
        rig.mutter("missed in a thread", 5, mention=True)
    await rig.back()
    missed = ["missed 1", "missed 2"] + ["missed in a thread"] * ("topics" in rig.can)
    await until(lambda: len(rig.box.messages) >= len(missed) + 1 + ("topics" in rig.can))
    await heard(rig, "after")
    new = [message for message in rig.box.messages if not message.text.startswith("before")]
    assert sorted(message.text for message in new) == ["after", *missed]
    direct = [message for message in new if message.text in missed[:2]]
    assert [message.text for message in direct] == ["missed 1", "missed 2"]
    assert {message.thread for message in direct} == {first.thread}


@demanded("catch_up", "topics")
async def test_a_shutdown_during_catch_up_loses_no_message(rig: Rig) -> None:
    await rig.say("before", 5)
    await rig.leave()
    rig.mutter("missed", 5, mention=True)
    rig.box.stalls = lambda message: message.text == "missed"
    await rig.back()
    await until(lambda: rig.box.stalled, what="the catch-up to be under way")
    rig.mutter("live", 5, mention=True)
    with suppress(TimeoutError):  # some channels delay events that arrive meanwhile
        await until(lambda: any(message.text == "live" for message in rig.box.messages), seconds=1.0)
    await rig.leave()
    rig.box.stalls = lambda message: False
    await rig.back()
    await until(lambda: len(rig.box.messages) >= 3, what="the rest")
    assert sorted(message.text for message in rig.box.messages) == ["before", "live", "missed"]
    await until(lambda: not rig.box.gaps, what="the end of the catch-up")


@pytest.mark.parametrize("hours", [0.0, 1e-6], ids=["off", "too old"])
@demanded("catch_up")
async def test_messages_older_than_the_limit_are_not_read(rig: Rig, hours: float) -> None:
    await rig.say("before")
    await rig.leave()
    rig.mutter("missed")
    rig.box.hours = hours
    await asyncio.sleep(0.01)  # more than 1e-6 hours: it is old now
    await rig.back()
    await heard(rig, "after")
    assert [message.text for message in rig.box.messages] == ["before", "after"]


@demanded("catch_up")
async def test_catch_up_reads_at_most_the_configured_number_of_messages(rig: Rig) -> None:
    await rig.say("before")
    await rig.leave()
    for number in range(5):
        rig.mutter(f"missed {number}")
    rig.box.most = 2
    await rig.back()
    await until(lambda: len(rig.box.messages) >= 2)
    await heard(rig, "after")
    assert len([message for message in rig.box.messages if message.text.startswith("missed")]) <= 2


@demanded("catch_up")
async def test_a_first_start_reads_no_history(rig: Rig) -> None:
    await rig.leave()
    rig.mutter("long ago")
    await rig.back()
    await heard(rig, "hello")
    assert [message.text for message in rig.box.messages] == ["hello"]


# ---------------------------------------------------------------- commands


@demanded("topics")
async def test_a_command_after_a_mention_is_a_command(rig: Rig) -> None:
    for text in ("/status", "!status"):
        message = await rig.say(text, 5)
        assert (message.kind, message.text, message.thread) == (Kind.COMMAND, "status", rig.thread(5))
        assert message.addressed


@pytest.mark.parametrize("topic", [0, 5])
@demanded("topics")
async def test_a_command_works_as_the_channel_spells_it(rig: Rig, topic: int) -> None:
    await rig.channel.announce([CommandInfo("status", "How I am"), CommandInfo("notify", "Pings", "on | off")])
    thread = (await rig.say("hello", topic)).thread
    for command in ("status", "notify off"):
        message = await rig.say(rig.channel.spell_command(thread, command), topic, mention=False)
        assert (message.kind, message.text, message.thread) == (Kind.COMMAND, command, thread)


@demanded("menu")
async def test_announced_commands_are_listed(rig: Rig) -> None:
    await rig.channel.announce([CommandInfo("stop", "Stop the work"), CommandInfo("model", "Which model", "NAME")])
    await until(lambda: {"stop", "model"} <= set(rig.commands()))


@demanded("menu")
async def test_commands_that_a_platform_cannot_list_are_left_out_and_work_as_text(rig: Rig) -> None:
    odd = [CommandInfo(name, "…") for name in ("a" * 33, "Loud", "找", "dots.x")]
    alike = [CommandInfo("see-all", "the first"), CommandInfo("see_all", "the second")]
    many = [CommandInfo(f"many{number}", "x" * 400, "WORDS") for number in range(120)]
    await rig.channel.announce([CommandInfo("stop", "Stop"), *odd, *alike, *many])
    await until(lambda: "many0" in rig.commands())
    listed = rig.commands()
    assert len(listed) <= 100
    assert len(set(listed)) == len(listed)
    assert not {each.name for each in odd} & set(listed)
    message = await rig.say(rig.channel.spell_command(rig.thread(), "a" * 33), mention=True)
    assert (message.kind, message.text) == (Kind.COMMAND, "a" * 33)


@demanded("native")
async def test_native_commands_arrive(rig: Rig) -> None:
    await rig.channel.announce([CommandInfo("stop", "Stop the work"), CommandInfo("model", "Which model", "NAME")])
    for number, text in enumerate(("stop", "model demo"), 1):
        rig.command(text)
        message = await rig.box.next(number, Kind.COMMAND)
        assert (message.text, message.thread) == (text, rig.thread())
        assert message.author.id
        await until(rig.felt)


# ---------------------------------------------------------------- the suite itself


def test_settings_import_no_sdk() -> None:
    names = ", ".join({f"channels.{kind.name}" for kind in RIGS.values()} - {"channels.web"})  # it has no settings
    heavy = "{'telegram', 'pyromark', 'aiohttp', 'slack_sdk', 'slack_bolt', 'discord', 'lark_oapi', 'prompt_toolkit'}"
    code = f"import sys, {names}; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_every_ability_is_required_by_some_test() -> None:
    for path in Path(__file__).parent.glob("test_channel_*.py"):
        import_module(f"tests.contracts.{path.stem}")
    assert ABILITIES.keys() == DEMANDED


@pytest.mark.parametrize("name", sorted(RIGS))
def test_every_rig_declares_only_known_abilities(name: str) -> None:
    assert RIGS[name].name == name.partition("-")[0]
    assert RIGS[name].can <= ABILITIES.keys()
    assert getattr(RIGS[name], "lacks", frozenset()) <= LACKS


async def test_a_reply_pings_nobody(rig: Rig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Here I am."))
    await settled(rig, "Here I am.")
    assert rig.pinged() == []
