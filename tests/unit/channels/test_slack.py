"""Slack's specifics: rendering, activity signs, buttons, the slash command, the shortcut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.blocks import Ask, Done, Final, Step, Text
from agent.messages import Kind, Thread
from channels.base import ChatGone, Receipt, Refused
from tests.fakes.slack import BOT, JANE, OPS, TEAM
from tests.support.recording_inbox import Memory
from tests.support.rigs.registry import deliver, ready, until
from tests.support.rigs.slack import DIRECT, SlackRig, methods, reply, shown


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    async with SlackRig.start(tmp_path) as made:
        await ready(made)
        yield made


# ---------------------------------------------------------------- rendering


# Case 8 of docs/cases.md
async def test_text_is_shown_literally_and_notifies_nobody(rig: SlackRig) -> None:
    text = f"a < b & <@{JANE}> <!channel> <!here|here> &lt;!here&gt; [x](http://y)\n\n> quote\n\n`if a < b: <@U1>`"
    message = await rig.say("hello", 7)
    await reply(rig, message).finish(Final(text))
    assert shown(rig).text == text
    assert rig.pinged(7) == []
    [call] = rig.server.calls_of("chat.postMessage")
    [block] = call.args["blocks"]
    assert block["type"] == "markdown"
    assert "> quote" in block["text"]
    assert "[x](http://y)" in block["text"]
    assert (call.args["unfurl_links"], call.args["unfurl_media"]) == (False, False)
    assert "<" not in call.args["text"]


# Case 70 of docs/cases.md
@pytest.mark.slow
async def test_a_long_answer_is_complete_in_few_messages(rig: SlackRig) -> None:
    rows = "\n".join(f"| {number} | 值 {number} |" for number in range(400))
    code = "\n".join(f"say({number})  # <@U1> @everyone <!here>" for number in range(400))
    text = f"# 标题\n\n```python\n{code}\n```\n\n| n | v |\n|---|---|\n{rows}\n\nThe end. <@U1>"
    rig.server.fault("flood", "chat.postMessage", seconds=1, skip=1)
    rig.server.fault("error", "chat.postMessage", code=500, skip=1)
    rig.server.fault("drop", "chat.update", after=True)
    message = await rig.say("hello", 7)
    await deliver(rig, Final(text), Memory(), 7)
    seen = "\n".join(rig.visible(7))
    for number in range(400):
        assert seen.count(f"say({number})") == 1
        assert seen.count(f"| 值 {number} |") == 1
    assert all(part.count("```") % 2 == 0 for part in rig.visible(7))
    assert len(rig.visible(7)) <= 3
    assert rig.pinged(7) == []
    assert message.thread == rig.thread(7)


async def test_a_long_stream_continues_in_further_messages(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("tell me", 7))
    words = [f"word{number}" for number in range(3000)]
    for start in range(0, 3000, 500):
        growing.show(Text(" ".join(words[start : start + 500]) + " "))
        await asyncio.sleep(0.1)
    await growing.finish(Final(" ".join(words)))
    assert " ".join(rig.visible(7)).split() == words
    assert len(rig.visible(7)) == 5


# ---------------------------------------------------------------- activity signs


async def test_the_session_of_a_thread_shows_the_start_and_end_of_work(rig: SlackRig) -> None:
    message = await rig.say("Write the report\nplease", 7)
    await until(lambda: rig.server.calls_of("agents.sessions.setStatus"))
    place, root = rig.server.conversation(OPS), rig.root(7)
    assert (place.sessions, place.titles) == ({root: "processing"}, {root: "Write the report please"})
    rig.server.fault("flood", "agents.sessions.setStatus", seconds=1)
    await reply(rig, message).finish(Final("Here it is."))
    await rig.channel.reply(message.thread, Memory("p"), asker=JANE).finish(Final("Done after 1 min.", mention=JANE))
    await until(lambda: place.sessions == {root: "active"})
    assert [call.args["status"] for call in rig.server.calls_of("agents.sessions.setStatus")][1:] == ["active"] * 2


async def test_a_session_is_suspended_while_it_waits_for_an_answer(rig: SlackRig) -> None:
    message = await rig.say("paint it", 7)
    await reply(rig, message).finish(Final("Which?", (Ask("ask-1", "Which?", ("red", "blue")),)))
    sessions = rig.server.conversation(OPS).sessions
    await until(lambda: sessions == {rig.root(7): "suspended"})
    rig.press("red", 7)
    growing = rig.channel.reply(message.thread, Memory("r2"), to=message.id, asker=JANE)
    await until(lambda: sessions == {rig.root(7): "processing"})
    await growing.finish(Final("It is red."))
    await until(lambda: sessions == {rig.root(7): "active"})


async def test_a_deleted_or_stopped_request_ends_its_session(rig: SlackRig) -> None:
    sessions, root = rig.server.conversation(OPS).sessions, rig.root(7)
    for withdraw in (rig.server.remove, lambda _: rig.server.send("!stop", thread=root)):
        message = await rig.say("never mind", 7)
        await until(lambda: sessions == {root: "processing"})
        withdraw(message.id)
        await until(lambda: sessions == {root: "active"})
    rig.server.remove(rig.server.send("lunch?", user="U2", thread=rig.root(8), silent=True))
    await rig.say("hello")
    assert sessions == {root: "active"}


async def test_an_app_without_agent_features_uses_reactions(rig: SlackRig) -> None:
    rig.server.agent = False
    message = await rig.say("hello", 7)
    await until(lambda: rig.server.conversation(OPS).posts[message.id].reactions == {"eyes": [BOT]})
    await reply(rig, message).finish(Final("Hi."))
    assert rig.visible(7) == ["Hi."]
    await until(lambda: rig.server.conversation(OPS).posts[message.id].reactions == {"eyes": []})


@pytest.fixture
async def agent_rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    """An app with `agent_view`, which the channel tells by its scopes."""
    async with SlackRig.start(tmp_path, agent_view=None) as made:
        made.server.agent_view = True
        yield made


async def test_a_message_in_agent_view_is_answered_in_its_thread(agent_rig: SlackRig) -> None:
    rig = agent_rig
    root = rig.server.send("Write the report", DIRECT)
    message = await rig.box.next()
    place = rig.server.conversation(DIRECT)
    await until(lambda: (place.sessions, place.titles) == ({root: "processing"}, {root: "Write the report"}))
    growing = reply(rig, message)
    growing.show(Step("s1", "reading"))
    growing.show(Text("Here"))
    streamed = await rig.server.wait("Here", DIRECT, root)
    assert (streamed.state, streamed.tasks) == ("streaming", ("reading: in_progress",))
    rig.server.press_stop(streamed.ts, DIRECT)
    stop = await rig.box.next(kind=Kind.COMMAND)
    assert (stop.text, stop.thread) == ("stop", message.thread)
    await growing.finish(Final("Here it is."))
    await until(lambda: place.sessions == {root: "active"})
    assert rig.server.texts(DIRECT, root) == ["Here it is."]
    assert rig.server.texts(DIRECT, "") == []
    assert place.posts[root].reactions == {}
    rig.server.send("and shorter", DIRECT, thread=root)
    assert (await rig.box.next(2)).thread == message.thread


async def test_the_model_gets_the_channel_that_the_person_is_looking_at(agent_rig: SlackRig) -> None:
    rig = agent_rig
    rig.server.send("the deploy failed", OPS, silent=True)
    rig.server.shares_context = True
    root = rig.server.send("summarize this", DIRECT)
    message = await rig.channel.enrich(await rig.box.next(), 0)
    assert [(quote.kind, quote.text) for quote in message.quotes] == [
        ("viewed", "the deploy failed"),
        ("view", f"#{rig.server.conversation(OPS).name or OPS}"),
    ]
    rig.server.send("and shorter", DIRECT, thread=root)
    follow_up = await rig.channel.enrich(await rig.box.next(2), 0)
    assert [quote.kind for quote in follow_up.quotes] == ["view"], "the conversation has the messages"
    rig.server.scopes -= {"channels:history"}
    rig.server.send("again", DIRECT)
    refused = await rig.channel.enrich(await rig.box.next(3), 0)
    assert [quote.kind for quote in refused.quotes] == ["view"]


async def test_eyes_are_taken_back_when_the_answer_is_there(rig: SlackRig) -> None:
    posts = rig.server.conversation(DIRECT).posts
    first, second = await rig.say("hello"), await rig.say("and more")
    await until(lambda: [posts[m.id].reactions for m in (first, second)] == [{"eyes": [BOT]}] * 2)
    rig.server.fault("flood", "reactions.remove", seconds=1)
    await reply(rig, first).finish(Final("Hi."))
    await until(lambda: [posts[m.id].reactions for m in (first, second)] == [{"eyes": []}] * 2)


async def test_eyes_are_taken_back_after_a_restart(rig: SlackRig) -> None:
    message = await rig.say("hello")
    reactions = rig.server.conversation(DIRECT).posts[message.id].reactions
    await until(lambda: reactions == {"eyes": [BOT]})
    await rig.leave()
    await rig.back()
    await reply(rig, message).finish(Final("Hi."))
    await until(lambda: reactions == {"eyes": []})


async def test_eyes_are_taken_back_when_the_request_is_withdrawn(rig: SlackRig) -> None:
    message = await rig.say("never mind")
    await until(lambda: rig.server.conversation(DIRECT).posts[message.id].reactions == {"eyes": [BOT]})
    rig.server.send("!stop", DIRECT)
    await until(lambda: rig.server.conversation(DIRECT).posts[message.id].reactions == {"eyes": []})


async def test_a_direct_message_gets_an_eyes_reaction_and_no_empty_message(rig: SlackRig) -> None:
    message = await rig.say("hello")
    await until(lambda: rig.server.conversation(DIRECT).posts[message.id].reactions == {"eyes": [BOT]})
    growing = reply(rig, message)
    await asyncio.sleep(1.4)  # longer than a placeholder would wait
    assert rig.visible() == []
    await growing.finish(Final("Hi."))


async def test_people_without_access_get_no_reaction(rig: SlackRig) -> None:
    rig.box.refuses = lambda message: True
    rig.mutter("hello", 7, mention=True)
    await until(lambda: rig.box.receipts)
    rig.box.refuses = lambda message: False
    await rig.say("hello", 8)
    await until(lambda: rig.server.conversation(OPS).sessions == {rig.root(8): "processing"})
    assert not rig.server.calls_of("reactions.add")


async def test_a_thread_of_a_direct_chat_is_streamed(rig: SlackRig) -> None:
    root = rig.server.send("about the report", DIRECT, silent=True)
    rig.server.send("write it", DIRECT, thread=root)
    message = await rig.box.next()
    assert message.thread == Thread("slack", TEAM, DIRECT, root)
    growing = reply(rig, message)
    growing.show(Text("On it."))
    assert (await rig.server.wait("On it.", DIRECT, root)).state == "streaming"
    await growing.finish(Final("On it."))
    assert rig.server.conversation(DIRECT).sessions == {root: "active"}


# ---------------------------------------------------------------- buttons


async def test_many_options_become_a_menu(rig: SlackRig) -> None:
    message = await rig.say("paint it", 7)
    options = tuple(f"colour {number}" for number in range(12))
    await reply(rig, message).finish(Final("Which?", (Ask("ask-1", "Which?", options),)))
    [call] = rig.server.calls_of("chat.postMessage")
    assert call.args["blocks"][-1]["elements"][0]["type"] == "static_select"
    rig.press("colour 11", 7)
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ask-1", "colour 11")
    await until(lambda: "✓ colour 11 (Jane)" in shown(rig).text)


async def test_buttons_are_below_a_finished_stream(rig: SlackRig) -> None:
    growing = reply(rig, await rig.say("paint it", 7))
    growing.show(Text("I can paint it."))
    await until(lambda: "paint it" in shown(rig).text)
    growing.show(Ask("ask-1", "Which colour?", ("red", "blue")))
    growing.show(Done("waiting"))
    await growing.finish(Final("I can paint it.\n\nWhich colour?", (Ask("ask-1", "Which colour?", ("red", "blue")),)))
    assert methods(rig)[-1] == "stopStream"
    assert rig.buttons(7) == ["red", "blue"]
    rig.press("blue", 7)
    assert (await rig.box.next(kind=Kind.CLICK)).text == "blue"
    await until(lambda: not rig.buttons(7))
    assert (
        shown(rig).text == "I can paint it.\n\nWhich colour?\n\n_Choose, or answer in your own words._\n✓ blue (Jane)"
    )


async def test_a_person_who_may_not_click_gets_a_private_notice(rig: SlackRig) -> None:
    message = await rig.say("paint it", 7)
    await reply(rig, message).finish(Final("Which?", (Ask("ask-1", "Which?", ("red", "blue")),)))
    rig.box.refuses = lambda click: click.author.id == "U2"
    rig.server.click("red", shown(rig).ts, user="U2")
    await until(lambda: rig.server.calls_of("chat.postEphemeral"))
    told = rig.server.visible(OPS, rig.root(7))[-1]
    assert (told.only_for, told.text) == ("U2", "Only the person I asked can answer.")
    rig.press("red", 7)
    await until(lambda: not rig.buttons(7))
    rig.server.conversation(OPS).posts[shown(rig).ts].blocks = rig.server.calls_of("chat.postMessage")[0].args["blocks"]
    rig.press("blue", 7)  # by a person whose app had not shown the change yet
    await until(lambda: rig.box.receipts[-1] is Receipt.DUPLICATE)
    await until(lambda: len(rig.server.calls_of("chat.postEphemeral")) == 2)
    assert rig.server.visible(OPS, rig.root(7))[-1].text == "This is already answered or closed."


# ---------------------------------------------------------------- the slash command, the shortcut


async def test_a_slash_command_is_answered_privately(rig: SlackRig) -> None:
    key = rig.server.slash("Status now")
    command = await rig.box.next(kind=Kind.COMMAND)
    assert (command.text, command.thread, command.addressed) == ("status now", Thread("slack", TEAM, OPS), True)
    assert command.author.name == "Jane"
    await until(lambda: rig.server.acked(key))
    await reply(rig, command).finish(Final("All is well."))
    [answer] = rig.server.visible(OPS)
    assert (answer.text, answer.only_for) == ("All is well.", JANE)
    assert rig.server.calls_of("chat.postMessage") == []


async def test_a_private_question_is_answered_in_place(rig: SlackRig) -> None:
    rig.server.slash("model")
    command = await rig.box.next(kind=Kind.COMMAND)
    await reply(rig, command).finish(Final("Which?", (Ask("ask-1", "Which?", ("small", "large")),)))
    [asked] = rig.server.visible(OPS)
    rig.server.click("large", asked.ts)
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ask-1", "large")
    await until(lambda: rig.server.visible(OPS)[0].text == "✓ large (Jane)")
    assert not rig.server.visible(OPS)[0].buttons


async def test_a_slash_command_without_words_is_help(rig: SlackRig) -> None:
    rig.server.slash("", DIRECT)
    command = await rig.box.next(kind=Kind.COMMAND)
    assert (command.text, command.private) == ("help", True)


async def test_a_late_answer_to_a_slash_command_is_a_message(rig: SlackRig) -> None:
    rig.server.slash("status")
    command = await rig.box.next(kind=Kind.COMMAND)
    for place in rig.server.responses.values():
        place["uses"] = 0
    await reply(rig, command).finish(Final("All is well."))
    [answer] = rig.server.visible(OPS)
    assert (answer.text, answer.only_for) == ("All is well.", "")


async def test_the_user_is_asked_to_repeat_an_interaction_that_cannot_be_stored(rig: SlackRig) -> None:
    rig.box.broken = True
    rig.server.slash("status")
    await until(lambda: rig.server.visible(OPS))
    [told] = rig.server.visible(OPS)
    assert "can't save" in told.text
    assert "send it again" in told.text
    assert told.only_for == JANE


async def test_the_shortcut_asks_about_a_message_in_its_thread(rig: SlackRig) -> None:
    ts = rig.server.send("the beamer is <https://x.example|broken>", user="U2", silent=True)
    key = rig.server.shortcut(ts)
    message = await rig.channel.enrich(await rig.box.next(), 0)
    assert (message.text, message.thread) == ("What about this?", Thread("slack", TEAM, OPS, ts))
    [quote] = message.quotes
    assert (quote.author, quote.text) == ("User U2", "the beamer is broken (https://x.example)")
    assert message.author.id == JANE
    await until(lambda: rig.server.acked(key))
    await reply(rig, message).finish(Final("Call the janitor."))
    assert rig.server.texts(OPS, ts) == ["Call the janitor."]


async def test_the_shortcut_is_answered_privately_where_the_app_is_not_a_member(rig: SlackRig) -> None:
    rig.server.conversation("G7").member = False
    ts = rig.server.send("the beamer is broken", "G7", user="U2", silent=True)
    rig.server.shortcut(ts, "G7")
    growing = reply(rig, message := await rig.box.next())
    growing.show(Text("Let me"))
    await until(lambda: rig.server.calls_of("chat.postMessage"))
    await growing.finish(Final("Call the janitor."))
    [answer] = rig.server.visible("G7")
    assert (answer.only_for, message.thread.chat) == (JANE, "G7")
    assert answer.text.startswith("Only you see this")
    assert answer.text.endswith("Call the janitor.")


# ---------------------------------------------------------------- channels


async def test_a_deleted_channel_raises_chat_gone(rig: SlackRig) -> None:
    message = await rig.say("hello", 7)
    rig.server.conversation(OPS).archived = True
    with pytest.raises(ChatGone):
        await reply(rig, message).finish(Final("Hi."))
    with pytest.raises(Refused):
        await rig.channel.reply(Thread("slack", "T9", "C1", "1.1"), Memory("r2")).finish(Final("Hi."))
