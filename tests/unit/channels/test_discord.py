"""Discord as users see it: threads on mentions, streams, files, questions, native commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from agent.blocks import Ask, Final, Plan, PlanItem, Step, Text
from agent.messages import ANYWHERE, Kind, Message, Thread, Unreadable
from channels.base import CommandInfo, OutgoingFile, Receipt, Refused, TitleSetter, TryLater
from channels.discord.api import WINDOW_SECONDS
from channels.discord.body import COMPONENTS_FLAG, MAX_MESSAGE_CHARS, DiscordMessage, message_body
from tests.fakes.discord import CHANNEL, GUILD, JANE, MAX, Rates
from tests.fakes.discord_world import ROLE
from tests.fakes.server import until
from tests.support.recording_inbox import Box, Memory
from tests.support.rigs.discord import DiscordRig
from tests.support.rigs.registry import deliver
from tests.unit.channels.test_rate_limit import ClockLoop


class Slow(Box):
    """A slow inbox."""

    async def receive(self, batch: Sequence[Message | Unreadable]) -> list[Receipt]:
        await asyncio.sleep(2.3)
        return await super().receive(batch)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DiscordRig]:
    async with DiscordRig.start(tmp_path) as made:
        yield made


async def asked(rig: DiscordRig, text: str, room: str = CHANNEL, *, mention: bool = True) -> Message:
    """Jane writes; returns the received message."""
    count = len(rig.box.messages)
    rig.server.say(text, room, mention=mention)
    return await rig.box.next(count + 1)


async def answer(rig: DiscordRig, message: Message, words: str, key: str = "r1") -> None:
    posts = Memory(key, handle=message.reply_handle)
    await rig.channel.reply(message.thread, posts, to=message.id).finish(Final(words))


# ---------------------------------------------------------------- threads


# Case 26 of docs/cases.md
async def test_a_mention_opens_a_thread_that_continues_without_mentions(rig: DiscordRig) -> None:
    first = await asked(rig, "Restart the *staging* servers, please")
    assert first.thread == Thread("discord", GUILD, CHANNEL, first.id)
    await answer(rig, first, "Restarted.")
    room = rig.server.rooms[first.id]
    assert (room.name, room.parent) == ("Restart the *staging* servers, please", CHANNEL)
    again = await asked(rig, "and the other one?", first.id, mention=False)
    assert (again.thread, again.follow_up, again.addressed) == (first.thread, True, False)
    await answer(rig, again, "That too.", "r2")
    assert [shown.text for shown in rig.server.visible(first.id)] == ["Restarted.", "That too."]
    assert not rig.server.visible(CHANNEL)


# Case 27 of docs/cases.md
async def test_the_first_thread_continues_after_a_second_mention(rig: DiscordRig) -> None:
    first, second = await asked(rig, "one thing"), await asked(rig, "another thing")
    for number, message in enumerate((first, second)):
        await answer(rig, message, f"Answer {number}.", f"r{number}")
    again = await asked(rig, "and then?", first.id, mention=False)
    assert (again.thread, again.follow_up) == (first.thread, True)
    await answer(rig, again, "Then that.", "r9")
    assert [shown.text for shown in rig.server.visible(first.id)] == ["Answer 0.", "Then that."]
    assert [shown.text for shown in rig.server.visible(second.id)] == ["Answer 1."]


async def test_a_thread_has_a_short_name_and_is_created_once(rig: DiscordRig) -> None:
    message = await asked(rig, "word " * 60)
    await asyncio.gather(*(answer(rig, message, f"{number}", f"r{number}") for number in range(3)))
    assert len(rig.server.calls_of("createThread")) == 1
    assert len(rig.server.visible(message.id)) == 3
    name = rig.server.rooms[message.id].name
    assert len(name) <= 100
    assert name.endswith("word…")


async def test_a_message_that_mentions_others_in_a_thread_is_not_for_the_bot(rig: DiscordRig) -> None:
    first = await asked(rig, "begin")
    await answer(rig, first, "Begun.")
    rig.server.say("what do you think?", first.id, names=(MAX,))
    marker = await asked(rig, "marker", first.id, mention=False)
    assert [message.text for message in rig.box.messages] == ["begin", "marker"]
    assert marker.follow_up


async def test_the_role_of_the_bot_counts_as_a_mention(rig: DiscordRig) -> None:
    message = await asked(rig, f"<@&{ROLE}> are you there?", mention=False)
    assert (message.text, message.addressed) == ("are you there?", True)


async def test_without_thread_permission_it_answers_in_the_channel_and_explains_once(rig: DiscordRig) -> None:
    rig.server.channel(CHANNEL, denied=("threads",))
    first, second = await asked(rig, "one"), await asked(rig, "two")
    posts = Memory("r1")
    await rig.channel.reply(first.thread, posts, to=first.id).finish(Final("First."))
    await answer(rig, second, "Second.", "r2")
    shown = rig.server.visible(CHANNEL)
    assert [(each.text, each.reply_to) for each in shown if each.reply_to] == [
        ("First.", first.id),
        ("Second.", second.id),
    ]
    assert len([each for each in shown if "Create Public Threads" in each.text]) == 1
    rig.server.say("go on", CHANNEL, reply_to=posts.rows[0] or "")
    reply = await rig.box.next(3)
    assert (reply.to_bot, reply.reply_to, reply.thread.topic) == (True, posts.rows[0], ANYWHERE)


async def test_a_channel_type_without_threads_needs_no_explanation(rig: DiscordRig) -> None:
    words = '{"code": 50024, "message": "Cannot execute action on this channel type"}'
    rig.server.fault("error", "createThread", code=400, body=words)
    await answer(rig, await asked(rig, "in a voice channel"), "Here.")
    assert [shown.text for shown in rig.server.visible(CHANNEL)] == ["Here."]


async def test_replies_go_to_the_channel_if_configured(tmp_path: Path) -> None:
    async with DiscordRig.start(tmp_path, threads="reply") as rig:
        message = await asked(rig, "quick one")
        assert message.thread == Thread("discord", GUILD, CHANNEL, "")
        await answer(rig, message, "Here.")
        [shown] = rig.server.visible(CHANNEL)
        assert (shown.text, shown.reply_to, shown.pinged) == ("Here.", message.id, ())
        assert not rig.server.calls_of("createThread")


async def test_an_archived_thread_is_reopened(rig: DiscordRig) -> None:
    message = await asked(rig, "begin")
    posts = Memory("r1")
    await rig.channel.reply(message.thread, posts, to=message.id).finish(Final("Begun."))
    rig.server.archive(message.id)
    await rig.channel.reply(message.thread, Memory("r1", posts.rows), to=message.id).finish(Final("Begun again."))
    assert [shown.text for shown in rig.server.visible(message.id)] == ["Begun again."]
    rig.server.archive(message.id)
    await answer(rig, message, "More.", "r2")
    assert [shown.text for shown in rig.server.visible(message.id)] == ["Begun again.", "More."]


async def test_a_restarted_process_knows_archived_threads(rig: DiscordRig) -> None:
    message = await asked(rig, "begin")
    await answer(rig, message, "Begun.")
    rig.server.archive(message.id)
    await rig.leave()
    await rig.back()
    await answer(rig, message, "More.", "r2")
    assert [shown.text for shown in rig.server.visible(message.id)] == ["Begun.", "More."]
    assert not rig.server.visible(CHANNEL)


# ---------------------------------------------------------------- rendering


async def test_steps_and_plan_are_an_embed_until_the_final_reply_and_links_have_no_preview(rig: DiscordRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Plan((PlanItem("look", "done"), PlanItem("write", "running"))))
    reply.show(Step("1", "reading the page"))
    reply.show(Text("See https://example.com/a and [b](https://example.com/b)"))
    await until(lambda: rig.server.visible() and "example.com/b" in rig.server.visible()[0].text)
    [shown] = rig.server.visible()
    assert shown.embed.split("\n") == ["☑ look", "▸ write", "▸ reading the page"]
    assert not shown.previews
    await reply.finish(Final("See https://example.com/a"))
    [shown] = rig.server.visible()
    assert (shown.text, shown.embed, shown.previews) == ("See https://example.com/a", "", False)


# Case 28 of docs/cases.md
async def test_typing_is_shown_until_the_reply_is_done(rig: DiscordRig) -> None:
    message = await asked(rig, "a long one")
    reply = rig.channel.reply(message.thread, Memory(), to=message.id)
    reply.show(Text("On it."))
    await until(lambda: rig.server.visible(message.id))
    room, [post] = rig.server.rooms[message.id], rig.server.calls_of("createMessage")
    await until(lambda: room.typing and room.typing[-1] > post.at)  # a message ends it, so it is sent again
    await reply.finish(Final("Done."))
    count = len(room.typing)
    await rig.say("and now?")
    await until(lambda: rig.server.calls_of("typing")[-1].channel != message.id, what="typing in another place")
    assert len(room.typing) == count


async def test_typing_is_shown_at_once(rig: DiscordRig) -> None:
    await asked(rig, "hello")
    await until(lambda: rig.server.rooms[CHANNEL].typing)


# Case 30 of docs/cases.md
async def test_long_answers_are_split_without_breaking_fences(rig: DiscordRig) -> None:
    code = "\n".join(f"print({number})  # some words to fill the line" for number in range(130))
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(f"Here:\n\n```python\n{code}\n```\n\nThat is all."))
    texts = [shown.text for shown in rig.server.visible()]
    assert len(texts) >= 2
    assert all(len(text) <= 4000 and text.count("```") % 2 == 0 for text in texts)
    assert all(text.startswith("```python") for text in texts[1:-1])
    assert "\n".join(texts).count("print(") == 130


# Case 70 of docs/cases.md
async def test_ten_thousand_characters_are_complete_despite_random_faults(tmp_path: Path) -> None:
    table = "| 名字 | n |\n|---|--:|\n" + "\n".join(f"| 行{number} | {number} |" for number in range(60))
    items = "\n".join(f"{number}. item {number}\n   - inner {number}" for number in range(60))
    code = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(150)) + "\n```"
    text = f"{table}\n\n{items}\n\n{code}\n\n<@{JANE}> @everyone " + "字" * 3000
    async with DiscordRig.start(tmp_path, per_channel=50.0, burst=20) as rig:
        rig.server.fault("error", "*", code=500, times=-1, chance=0.12)
        rig.server.fault("flood", "*", seconds=0.05, times=-1, chance=0.12)
        posts = Memory()
        for _ in range(200):
            reply = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
            try:
                await reply.finish(Final(text))
                break
            except Exception as error:  # noqa: BLE001 — as the outbox does: again, whatever it was
                await asyncio.sleep(min(getattr(error, "after", 0.0), 0.05))
            finally:
                await reply.close()
        rig.server.clear_faults()
        shown = rig.server.visible()
        seen = "\n".join(rig.visible())
        assert [int(line.split("|")[1]) for line in seen.splitlines() if line.startswith("行")] == list(range(60))
        assert [f"inner {number}" in seen for number in range(60)] == [True] * 60
        assert seen.count("value_") == 150
        assert seen.count("字") == 3001 - 1 + seen.count("名字")
        assert not [person for each in shown for person in each.pinged]
        assert all(each.text.count("```") % 2 == 0 for each in shown)


@pytest.mark.slow
async def test_edits_and_the_final_reply_keep_the_rate_limit(tmp_path: Path) -> None:
    async with DiscordRig.start(tmp_path, per_channel=0.7) as rig:
        rig.server.rates = Rates()
        reply = rig.channel.reply(rig.thread(), Memory())
        for number in range(300):
            reply.show(Text(f"w{number} "))
            await asyncio.sleep(0.02)
        await reply.finish(Final("All of it."))
        assert rig.server.floods == 0
        assert len(rig.server.calls_of("editMessage")) >= 4
        assert [shown.text for shown in rig.server.visible()] == ["All of it."]


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize("options", [("x" * 90, "y" * 120), tuple(f"choice {number}" for number in range(40))])
async def test_many_or_long_options_become_menus(rig: DiscordRig, options: tuple[str, ...]) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", options),)))
    labels = rig.buttons()
    assert len(labels) == len(options)
    rig.press(labels[-1])
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ask-1", options[-1])
    await until(lambda: not rig.buttons())


async def test_a_click_without_threads_lets_the_inbox_find_the_conversation(rig: DiscordRig) -> None:
    rig.server.channel(CHANNEL, denied=("threads",))
    message = await asked(rig, "which one?")
    posts = Memory()
    ask = Ask("ask-1", "Which?", ("a", "b"))
    await rig.channel.reply(message.thread, posts, to=message.id).finish(Final("Which?", (ask,)))
    rig.server.press("a", CHANNEL)
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.thread.topic, click.reply_to, click.to_bot) == (ANYWHERE, posts.rows[0], True)


async def test_a_person_who_may_not_answer_gets_a_private_notice(rig: DiscordRig) -> None:
    rig.box.refuses = lambda message: message.author.id == MAX
    ask = Ask("ask-1", "Which?", ("a", "b"))
    await rig.channel.reply(rig.thread(3), Memory()).finish(Final("Which?", (ask,)))
    token = rig.server.press("a", rig.room(3), user=MAX)
    await until(lambda: rig.server.interactions[token]["whispers"])
    assert "Only the person I asked" in rig.server.interactions[token]["whispers"][0]
    assert rig.buttons(3) == ["a", "b"]


async def test_only_the_click_that_counts_is_shown(rig: DiscordRig) -> None:
    await rig.channel.reply(rig.thread(3), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("a", "b")),)))
    rig.press("a", 3)
    late = rig.server.press("b", rig.room(3), user=MAX)
    await until(lambda: rig.server.interactions[late]["whispers"])
    assert "already answered" in rig.server.interactions[late]["whispers"][0]
    [row] = rig.server.rooms[rig.room(3)].messages[rig.server.visible(rig.room(3))[-1].id]["components"]
    assert [part["label"] for part in row["components"]] == ["✓ a (Jane)"]


@pytest.mark.slow
async def test_a_click_is_deferred_while_the_store_is_slow(rig: DiscordRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("a", "b")),)))
    await rig.leave()
    rig.box = Slow()
    await rig.back()
    token = rig.server.press("a", rig.room(0))
    await until(lambda: rig.server.interactions[token]["answers"])
    assert rig.server.interactions[token]["answers"] == [{"type": 6}]
    await until(lambda: not rig.buttons())
    assert (await rig.box.next(kind=Kind.CLICK)).text == "a"


# ---------------------------------------------------------------- native commands


async def test_a_native_command_is_answered_in_its_response_and_later_in_a_post(rig: DiscordRig) -> None:
    await rig.channel.announce([CommandInfo("status", "What I do", "which"), CommandInfo("stop", "Stop")])
    before = len(rig.server.calls_of("setCommands"))
    await rig.channel.announce([CommandInfo("status", "What I do", "which"), CommandInfo("stop", "Stop")])
    assert len(rig.server.calls_of("setCommands")) == before == 1
    for late in (False, True):
        token = rig.server.slash("status", "all", CHANNEL)
        command = await rig.box.next(1 + late, kind=Kind.COMMAND)
        assert (command.text, command.thread) == ("status all", Thread("discord", GUILD, CHANNEL, ""))
        answers = rig.server.interactions[token]["answers"]
        await until(answers.copy)
        assert answers == [{"type": 5}]
        if late:
            rig.server.expire(token)
        await answer(rig, command, f"late: {late}", f"r{late}")
        assert rig.server.visible(CHANNEL)[-1].text == f"late: {late}"
    assert len(rig.server.calls_of("createMessage")) == 1


async def test_an_answer_waits_until_discord_has_registered_the_interaction(rig: DiscordRig) -> None:
    rig.server.fault("slow", "callback", seconds=0.3)
    rig.server.slash("status", "", CHANNEL)
    command = await rig.box.next(kind=Kind.COMMAND)
    await answer(rig, command, "At once.")
    assert [shown.text for shown in rig.server.visible(CHANNEL)] == ["At once."]
    assert [call.method for call in rig.server.calls if call.text] == ["editOriginal"]


async def test_commands_work_by_mention_and_by_exclamation_mark(rig: DiscordRig) -> None:
    await rig.channel.announce([CommandInfo("stop", "Stop")])
    for text, mention in (("/stop now", True), ("!stop now", False), ("!stop now", True)):
        message = await asked(rig, text, mention=mention)
        assert (message.kind, message.text) == (Kind.COMMAND, "stop now")
    rig.server.say("!play some music", CHANNEL)  # a command for another bot
    marker = await asked(rig, "marker")
    assert marker.text == "marker"
    assert len(rig.box.messages) == 4


# ---------------------------------------------------------------- files, quotes


# Case 29 of docs/cases.md
async def test_a_message_with_only_files_starts_a_turn(rig: DiscordRig) -> None:
    rig.server.say("", CHANNEL, mention=True, files=[("a.txt", b"one"), ("b.png", b"two")])
    message = await rig.box.next()
    assert (message.text, message.addressed) == ("", True)
    assert [(file.name, file.kind, file.size) for file in message.attachments] == [
        ("a.txt", "file", 3),
        ("b.png", "image", 3),
    ]
    assert b"".join([chunk async for chunk in rig.channel.fetch(message.attachments[1])]) == b"two"


async def test_an_expired_file_link_is_renewed(rig: DiscordRig) -> None:
    rig.server.say("look", files=[("a.txt", b"data")])
    message = await rig.box.next()
    rig.server.run_out()
    assert b"".join([chunk async for chunk in rig.channel.fetch(message.attachments[0])]) == b"data"
    rig.server.run_out()
    rig.server.withdraw(message.id)
    with pytest.raises(Refused, match="no longer available"):
        _ = [chunk async for chunk in rig.channel.fetch(message.attachments[0])]


async def test_a_server_of_a_higher_tier_takes_larger_files(rig: DiscordRig, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    with path.open("wb") as file:
        file.truncate(11 << 20)
    rig.server.server(GUILD, tier=2)
    rig.server.push("GUILD_UPDATE", rig.server.guild_json(GUILD))
    message = await asked(rig, "make it")
    big = OutgoingFile(path, "big.bin", 11 << 20)
    await rig.channel.send_files(message.thread, [big], Memory("f1"))
    assert rig.server.visible(message.id)[0].files == ("big.bin",)
    with pytest.raises(Refused, match=r"big\.bin: it has 11 MB; Discord takes at most 10 MB here"):
        await rig.channel.send_files(rig.thread(), [big], Memory("f2"))


# Case 82 of docs/cases.md
async def test_a_mention_in_a_human_thread_brings_the_earlier_messages(rig: DiscordRig) -> None:
    starter = rig.server.say("The build is red", CHANNEL, user=MAX)
    rig.server.thread(CHANNEL, "The build", MAX, starter["id"])
    for number in range(5):
        rig.server.say(f"idea {number}", starter["id"], user=MAX)
    quoted = rig.server.say("it is the cache", starter["id"], user=MAX)
    rig.server.say("is that so?", starter["id"], mention=True, reply_to=quoted["id"])
    message = await rig.box.next(7)
    assert [said.addressed for said in rig.box.messages] == [False] * 6 + [True]
    assert message.thread == Thread("discord", GUILD, CHANNEL, starter["id"])
    assert [(quote.author, quote.text, quote.kind) for quote in message.quotes] == [("Max", "it is the cache", "reply")]
    rich = await rig.channel.enrich(message, 20)
    assert [quote.text for quote in rich.quotes if quote.kind == "earlier"] == [
        "The build is red",
        *(f"idea {number}" for number in range(5)),
        "it is the cache",
    ]
    few = await rig.channel.enrich(message, 2)
    assert [quote.text for quote in few.quotes if quote.kind == "earlier"] == [
        "The build is red",
        "idea 4",
        "it is the cache",
    ]


async def talk_above(rig: DiscordRig, text: str, most: int = 20) -> list[str]:
    rig.server.say(text, CHANNEL, mention=True)
    await until(lambda: any(said.text == text for said in rig.box.messages))
    [message] = [said for said in rig.box.messages if said.text == text]
    rich = await rig.channel.enrich(message, most)
    return [quote.text for quote in rich.quotes if quote.kind == "earlier"]


@pytest.mark.parametrize("gap", ["none", "a new session", "another role"])
async def test_what_the_gateway_delivered_is_not_read_again(rig: DiscordRig, gap: str) -> None:
    """What the bot has not heard is read once, and again where it may have missed something."""
    rig.server.say("before it came", CHANNEL, user=MAX, ago=600, quiet=True)
    assert await talk_above(rig, "first") == ["before it came"]
    typo = rig.server.say("the buidl is red", CHANNEL, user=MAX)
    secret = rig.server.say("the password is 1234", CHANNEL, user=MAX)
    assert await talk_above(rig, "second", 3) == ["first", "the buidl is red", "the password is 1234"]
    rig.server.amend(typo["id"], "the build is red", CHANNEL)
    rig.server.withdraw(secret["id"], CHANNEL)
    if gap == "a new session":
        rig.server.forget()
        rig.server.abort()
        await until(lambda: rig.server.identifies == 2)
    elif gap == "another role":
        rig.server.push("GUILD_ROLE_UPDATE", {"guild_id": GUILD, "role": {"id": ROLE, "tags": {}}})
    assert await talk_above(rig, "third") == ["before it came", "first", "the build is red", "second"]
    assert (len(rig.server.calls_of("getMessages")) == 1) == (gap == "none")


async def test_who_left_or_came_to_a_voice_channel_only_is_no_member(rig: DiscordRig) -> None:
    """The history and replies do not say it: the server is asked, once for each person."""
    guest, gone, member, live = people = ["201", "202", "203", "204"]
    rig.server.guests.add((GUILD, guest))
    rig.server.left.add((GUILD, gone))
    for person in people[:3]:
        rig.server.say(f"by {person}", CHANNEL, user=person, ago=600, quiet=True)
    said = rig.server.say("by a live one", CHANNEL, user=live)
    for number in range(2):
        rig.server.say("so?", CHANNEL, mention=True, reply_to=said["id"])
        rich = await rig.channel.enrich(await rig.box.next(number + 1), 20)
        found = [(quote.author_id, quote.member) for quote in rich.quotes if quote.author_id in people]
        assert found == [(guest, False), (gone, False), (member, True), (live, True), (live, True)]
    assert len(rig.server.calls_of("member")) == 3


async def test_a_look_at_a_member_that_fails_is_repeated_by_the_next_turn(rig: DiscordRig) -> None:
    said = rig.server.say("by Max", CHANNEL, user=MAX, ago=600, quiet=True)
    rig.server.fault("error", "member", code=500, times=1)
    for number, is_member in enumerate((False, True), 1):
        rig.server.say("so?", CHANNEL, mention=True, reply_to=said["id"])
        rich = await rig.channel.enrich(await rig.box.next(number), 0)
        assert [(quote.author_id, quote.member) for quote in rich.quotes] == [(MAX, is_member)]


async def test_people_who_ask_at_once_share_one_look_at_the_channel(rig: DiscordRig) -> None:
    rig.server.say("before it came", CHANNEL, user=MAX, ago=600, quiet=True)
    for number in range(20):
        rig.server.say(f"question {number}", CHANNEL, mention=True)
    await rig.box.next(20)
    rich = await asyncio.gather(*(rig.channel.enrich(message, 50) for message in rig.box.messages))
    talk = ["before it came", *(f"question {number}" for number in range(20))]
    assert [[quote.text for quote in each.quotes] for each in rich] == [talk[: number + 1] for number in range(20)]
    assert len(rig.server.calls_of("getMessages")) == 1


async def test_a_channel_that_is_not_known_holds_nobody_else(rig: DiscordRig) -> None:
    starter = rig.server.say("The build is red", CHANNEL, user=MAX)
    rig.server.thread(CHANNEL, "The build", MAX, starter["id"], quiet=True)
    rig.server.fault("slow", "getChannel", seconds=0.5)
    rig.server.say("one", starter["id"], mention=True)
    await until(lambda: rig.server.calls_of("getChannel"))
    rig.server.say("two", starter["id"], mention=True)
    rig.server.say("elsewhere", CHANNEL, mention=True)
    await rig.box.next(3)
    assert [message.text for message in rig.box.messages] == ["elsewhere", "one", "two"]
    assert {message.thread.topic for message in rig.box.messages[1:]} == {starter["id"]}
    assert len(rig.server.calls_of("getChannel")) == 1


async def test_a_title_needs_no_look_at_the_thread(rig: DiscordRig) -> None:
    message = await asked(rig, "please sum up the report of the quarter")
    await answer(rig, message, "Done.")
    assert isinstance(rig.channel, TitleSetter)
    await rig.channel.set_title(message.thread, "Quarter")
    assert rig.server.rooms[message.id].name == "Quarter"
    assert not rig.server.calls_of("getChannel")


async def test_a_ping_refers_to_the_answer_and_reaches_one_person(rig: DiscordRig) -> None:
    message = await asked(rig, "take your time")
    posts = Memory("r1")
    await rig.channel.reply(message.thread, posts, to=message.id).finish(Final("The answer."))
    final = Final(f"Done. <@{MAX}> @everyone", mention=JANE)
    await rig.channel.reply(message.thread, Memory("o1"), to=posts.rows[0] or "", asker=JANE).finish(final)
    ping = rig.server.visible(message.id)[-1]
    assert (ping.pinged, ping.reply_to) == ((JANE,), posts.rows[0])
    assert ping.text.startswith(f"<@{JANE}> Done.")


async def test_a_first_message_that_came_while_the_process_was_dead_is_caught_up(rig: DiscordRig) -> None:
    """Nothing was heard from this server before."""
    await until(lambda: rig.box.first_starts, what="the first start")
    await rig.leave()
    rig.server.say("are you there?", CHANNEL, mention=True)
    await rig.back()
    message = await rig.box.next(1)
    assert message.text == "are you there?"


async def test_an_ignored_message_shows_no_typing(rig: DiscordRig) -> None:
    rig.box.refuses = lambda message: True
    rig.server.say("hello", CHANNEL, mention=True)
    await until(lambda: rig.box.receipts == [Receipt.IGNORED])
    rig.box.refuses = lambda message: False
    await rig.say("hello")
    await until(lambda: rig.server.calls_of("typing"))
    assert not rig.server.rooms[CHANNEL].typing


LONG = "\n\n".join(f"Paragraph {number}: " + "words and words " * 60 for number in range(20))
PAGE = "\n\n".join(f"Paragraph {number}: " + "words and words " * 30 for number in range(7))  # 3,500 characters


@pytest.mark.parametrize("topic", [0, 3], ids=["direct", "thread"])
async def test_an_answer_of_four_thousand_characters_is_one_message(rig: DiscordRig, topic: int) -> None:
    reply = rig.channel.reply(rig.thread(topic), Memory(), asker=JANE)
    reply.show(Step("s1", "Reading", "running"))
    await until(lambda: rig.visible(topic), what="the progress")
    reply.show(Text(PAGE))
    await until(lambda: "Paragraph 6" in rig.visible(topic)[0], what="the live answer")
    [shown] = rig.server.visible(rig.room(topic))
    assert "Reading" in shown.embed
    assert [label for label, _ in shown.buttons] == ["⏹ Stop"]
    await reply.finish(Final(PAGE, steps=(Step("s1", "Reading", "done"),), step_count=1, mention=JANE))
    [shown] = rig.server.visible(rig.room(topic))
    assert "".join(PAGE.split()) in "".join(shown.text.split())
    assert (shown.embed, shown.buttons) == ("", ())
    assert "1 step" in shown.text


async def test_a_press_below_a_long_question_keeps_its_text(rig: DiscordRig) -> None:
    ask = Ask("ask-1", PAGE, ("red", "blue"))
    await deliver(rig, Final(PAGE, (ask,)), Memory(), 3)
    rig.press("red", 3)
    await until(lambda: rig.labels(3) == ["✓ red (Jane)"], what="the choice")
    assert "Paragraph 6" in rig.visible(3)[-1]
    assert rig.box.messages[-1].text == "red"


async def test_a_press_on_retry_below_a_long_failure_keeps_its_text(rig: DiscordRig) -> None:
    await deliver(rig, Final(PAGE, state="failed"), Memory(), 3)
    rig.press("↻ Retry", 3)
    await until(lambda: not rig.buttons(3), what="the press")
    assert "Paragraph 6" in rig.visible(3)[-1]


async def test_a_restarted_process_shortens_an_answer_that_was_long(rig: DiscordRig) -> None:
    """A message of components stays one: Discord refuses to take the flag away."""
    message = await asked(rig, "tell me")
    posts = Memory()
    await rig.channel.reply(message.thread, posts, to=message.id).finish(Final(PAGE))
    [before] = rig.server.visible(message.id)
    again = rig.channel.reply(message.thread, Memory(rows=posts.rows), to=message.id)
    await again.finish(Final("Short."))
    [after] = rig.server.visible(message.id)
    assert (after.id, after.text) == (before.id, "Short.")
    assert [call.status for call in rig.server.calls_of("editMessage")][-2:] == [400, 200]


async def test_a_long_answer_with_a_long_plan_shows_both_while_it_runs(rig: DiscordRig) -> None:
    plan = Plan(tuple(PlanItem(f"item {number} " + "of the plan " * 7, "running") for number in range(15)))
    reply = rig.channel.reply(rig.thread(3), Memory())
    reply.show(plan)
    reply.show(Text(PAGE + "\n\n" + "more " * 80))
    await until(lambda: "item 14" in "\n".join(rig.visible(3)), what="the plan")
    assert "Paragraph 6" in "\n".join(rig.visible(3))
    assert {call.status for call in rig.server.calls_of("createMessage")} == {200}
    await reply.finish(Final(PAGE))
    [shown] = rig.server.visible(rig.room(3))
    assert "".join(shown.text.split()) == "".join(PAGE.split())


async def test_the_rest_of_a_long_answer_is_a_file(rig: DiscordRig) -> None:
    message = await asked(rig, "tell me everything")
    reply = rig.channel.reply(message.thread, Memory(), to=message.id)
    reply.show(Text(LONG))
    await until(lambda: len(rig.server.visible(message.id)) == 3, what="the live answer")
    await reply.finish(Final(LONG))
    first, second, last = rig.server.visible(message.id)
    assert [each.files for each in (first, second)] == [()] * 2
    assert (last.files, "rest is in the file" in last.text) == (("answer.md",), True)
    [file] = rig.server.rooms[message.id].messages[last.id]["attachments"]
    whole = "\n".join([first.text, second.text, rig.server.files[file["id"]].decode()])
    assert "".join(whole.split()) == "".join(LONG.split())
    await reply.finish(Final(LONG))  # an outbox may try again
    assert len(rig.server.visible(message.id)) == 3


async def test_where_files_are_forbidden_a_long_answer_is_messages(rig: DiscordRig) -> None:
    message = await asked(rig, "tell me everything")
    await rig.channel.reply(message.thread, Memory("r0"), to=message.id).finish(Final("Hm."))
    rig.server.rooms[message.id].denied.add("files")
    posts = Memory()
    with pytest.raises(TryLater):
        await rig.channel.reply(message.thread, posts, to=message.id).finish(Final(LONG))
    await rig.channel.reply(message.thread, Memory(rows=posts.rows), to=message.id).finish(Final(LONG))
    texts = [each.text for each in rig.server.visible(message.id)[1:]]
    assert "".join("".join(texts).split()) == "".join(LONG.split())


@pytest.mark.parametrize("links", [1, 10, 40, 70])
def test_no_length_of_a_text_gives_its_links_a_preview_while_it_works(links: int) -> None:
    """The marks that hide previews are never left out: a text with which they do not fit is a component."""
    text = " ".join(f"https://evil.test/{number:04}" for number in range(links)) + " x" * ((1990 - 23 * links) // 2)
    body = message_body(DiscordMessage(text, progress="reads"))
    if not body["flags"] & COMPONENTS_FLAG:
        assert len(body["content"]) <= MAX_MESSAGE_CHARS
        assert body["content"].count("<https://") == links
    assert links < 40 or body["flags"] & COMPONENTS_FLAG


def test_a_crowd_has_its_threads_before_any_answer_ends(tmp_path: Path) -> None:
    """Ends need their threads: what is kept for ends is for these, too. In the limits' time."""

    async def work() -> None:
        async with DiscordRig.start(tmp_path) as rig:
            chats = [Thread("discord", GUILD, CHANNEL, rig.server.say("sum up", CHANNEL)["id"]) for _ in range(40)]
            began = asyncio.get_running_loop().time()
            replies = [rig.channel.reply(chat, Memory(f"r{n}"), to=chat.topic) for n, chat in enumerate(chats)]
            await until(lambda: len(rig.server.calls_of("createThread")) == len(chats))
            assert asyncio.get_running_loop().time() - began < 2 * WINDOW_SECONDS
            for reply in replies:
                await reply.close()

    loop = ClockLoop(io_seconds=0.003)
    loop.run_until_complete(work())
    loop.close()
