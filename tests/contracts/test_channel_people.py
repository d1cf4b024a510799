"""Contract of every channel: buttons, edits and deletions, and no unwanted notifications."""

from __future__ import annotations

import re

from agent.blocks import Approve, Ask, Done, Final, Text, View
from agent.messages import ANYWHERE, Kind, Message
from channels.base import Receipt, TitleSetter
from tests.support.rigs.registry import Memory, Rig, deliver, demanded, settled, until

COLOURS = Ask("ask-0123456789abcdef0123456789abcdef", "Which colour?", ("red", "a very dark shade of blue", "绿"))


async def ask(rig: Rig, *questions: Ask | Approve, topic: int = 0) -> dict[int, str]:
    """Post questions that wait for an answer; return which message shows which."""
    view, posts = View(), Memory()
    for question in questions or (COLOURS,):
        view.add(question)
    view.add(Done("waiting"))
    await rig.channel.reply(rig.thread(topic), posts).finish(view.final())
    return posts.rows.questions


# ---------------------------------------------------------------- buttons


@demanded("buttons")
async def test_an_option_can_be_clicked(rig: Rig) -> None:
    await rig.say("paint it")
    await ask(rig)
    assert "Which colour?" in "\n".join(rig.visible())
    assert rig.buttons() == list(COLOURS.options)
    rig.press("a very dark shade of blue")
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text, click.thread) == (COLOURS.id, "a very dark shade of blue", rig.thread())
    assert click.author.id == rig.box.messages[0].author.id
    await until(rig.felt)
    await until(lambda: not rig.buttons())
    assert "Which colour?" in "\n".join(rig.visible())


@demanded("buttons", "topics")
async def test_a_click_in_a_thread_names_its_thread(rig: Rig) -> None:
    await rig.say("paint it", 7)
    await ask(rig, topic=7)
    rig.press("绿", 7)
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text, click.thread) == (COLOURS.id, "绿", rig.thread(7))
    await until(rig.felt)


@demanded("buttons")
async def test_a_double_click_counts_once_and_both_clicks_are_answered(rig: Rig) -> None:
    await ask(rig)
    rig.press("red")
    rig.press("绿")
    await until(rig.felt)
    await until(lambda: not rig.buttons())
    await until(lambda: len(rig.box.receipts) == 2)
    assert sorted(rig.box.receipts) == [Receipt.ACCEPTED, Receipt.DUPLICATE]


@demanded("buttons", "redelivery")
async def test_a_redelivered_click_has_the_same_key(rig: Rig) -> None:
    await ask(rig)
    rig.press("red")
    click = await rig.box.next(kind=Kind.CLICK)
    await until(rig.felt)
    rig.box.events.clear()
    rig.redeliver()
    assert (await rig.box.next(kind=Kind.CLICK)).key == click.key


@demanded("buttons")
async def test_a_refused_click_is_answered_and_keeps_the_buttons(rig: Rig) -> None:
    rig.box.refuses = lambda message: message.kind is Kind.CLICK
    await ask(rig)
    rig.press("red")
    await until(lambda: rig.box.receipts == [Receipt.IGNORED])
    await until(rig.felt)
    assert rig.buttons() == list(COLOURS.options)


@demanded("buttons")
async def test_buttons_work_after_a_restart(rig: Rig) -> None:
    await ask(rig)
    await rig.leave()
    await rig.back()
    rig.press("绿")
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text, click.thread) == (COLOURS.id, "绿", rig.thread())
    await until(rig.felt)
    await until(lambda: not rig.buttons())


@demanded("buttons")
async def test_an_approval_has_two_buttons_and_shows_the_exact_call(rig: Rig) -> None:
    await ask(rig, Approve("ap-1", "May I run `sql`?", "It deletes data.", "sql\nDROP TABLE *users*", hours=24.0))
    shown = "\n".join(rig.visible())
    assert all(words in shown for words in ("DROP TABLE *users*", "deletes data", "counts as denied"))
    assert rig.buttons() == ["Approve", "Deny"]
    rig.press("Deny")
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ap-1", "Deny")


@demanded("buttons")
async def test_an_option_too_long_for_a_button_is_answered_in_full(rig: Rig) -> None:
    long = "the one with " + "many " * 60 + "words"
    await ask(rig, Ask("ask-2", "Which?", ("short", long)))
    assert long in " ".join("\n".join(rig.visible()).split())  # if a button truncates it, it is written out
    rig.press(rig.buttons()[1])
    click = await rig.box.next(kind=Kind.CLICK)
    assert click.text == long


@demanded("buttons")
async def test_a_long_text_has_its_buttons_at_the_end(rig: Rig) -> None:
    words = [f"word{number}" for number in range(rig.channel.limits.text_limit // 4)]
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(" ".join(words), (COLOURS,)))
    assert re.findall(r"word\d+", " ".join(rig.visible())) == words
    assert rig.buttons() == list(COLOURS.options)
    rig.press("red")
    assert (await rig.box.next(kind=Kind.CLICK)).text == "red"
    await until(lambda: not rig.buttons())
    assert re.findall(r"word\d+", " ".join(rig.visible())) == words


@demanded("buttons")
async def test_many_options_can_all_be_read(rig: Rig) -> None:
    options = tuple(f"option-{number}-" for number in range(40))
    await ask(rig, Ask("ask-4", "Which?", options))
    seen = "\n".join([*rig.visible(), *rig.buttons()])
    assert [option for option in options if option not in seen] == []
    if rig.buttons():
        rig.press(rig.buttons()[-1])
        assert (await rig.box.next(kind=Kind.CLICK)).text in options


@demanded("buttons", "edits")
async def test_an_answered_question_loses_its_buttons(rig: Rig) -> None:
    posts = Memory()
    await rig.channel.reply(rig.thread(), posts).finish(Final("Which colour?", (COLOURS,)))
    assert rig.buttons()
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("Red it is."))
    assert rig.visible() == ["Red it is."]
    assert not rig.buttons()


@demanded("buttons")
async def test_each_of_several_questions_has_its_own_buttons(rig: Rig) -> None:
    shown = await ask(rig, COLOURS, Ask("ask-5", "Which size?", ("small", "large")))
    assert [*dict.fromkeys(shown.values())] == [COLOURS.id, "ask-5"]
    seen = "\n".join(rig.visible())
    assert seen.index("1.") < seen.index("Which colour?") < seen.index("2.") < seen.index("Which size?")
    rig.press("large")
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ask-5", "large")
    await until(rig.felt)
    await until(lambda: not rig.buttons())
    rig.press("red")  # those of the other question remain
    click = await rig.box.next(2, kind=Kind.CLICK)
    assert (click.target, click.text) == (COLOURS.id, "red")
    await until(rig.felt)


# ---------------------------------------------------------------- edits and deletions


@demanded("amend")
async def test_an_edit_names_its_message(rig: Rig) -> None:
    message = await rig.say("what is 2+2?")
    rig.amend("what is 2+3?")
    edit = await rig.box.next(kind=Kind.EDIT)
    assert (edit.target, edit.text, edit.thread) == (message.key, "what is 2+3?", message.thread)
    assert edit.key != message.key
    assert edit.author.id == message.author.id
    rig.amend("what is 2+4?")
    again = await rig.box.next(2, Kind.EDIT)
    assert (again.target, again.text) == (message.key, "what is 2+4?")


@demanded("withdraw")
async def test_a_deletion_names_its_message(rig: Rig) -> None:
    message = await rig.say("never mind")
    rig.withdraw()
    deletion = await rig.box.next(kind=Kind.DELETE)
    assert deletion.target == message.key
    assert deletion.key != message.key


@demanded("reactions")
async def test_a_cross_reaction_on_the_reply_stops_the_turn(rig: Rig) -> None:
    for topic in (0, 7) if "topics" in rig.can else (0,):
        await rig.say("work", topic)
        posts = Memory(f"r{topic}")
        reply = rig.channel.reply(rig.thread(topic), posts)
        reply.show(Text("I am on it"))
        await settled(rig, "I am on it", topic)
        rig.react(topic)
        stop: Message = await rig.box.next(4 if topic else 2)
        shown = (posts.rows[0] or "").partition("/")[0]  # a channel may store "id/handle"
        # 👎 on an answer that is being written stops it; the inbox knows that
        assert (stop.kind, stop.text) in ((Kind.COMMAND, "stop"), (Kind.FEEDBACK, "down"))
        assert (stop.addressed, stop.to_bot, stop.reply_to) == (False, True, shown)
        assert stop.thread.topic in (rig.thread(topic).topic, ANYWHERE)
        assert stop.thread.chat in (rig.thread(topic).chat, ANYWHERE)
        assert (stop.thread.channel, stop.thread.workspace) == (rig.name, rig.thread(topic).workspace)
        assert stop.author.id == rig.box.messages[0].author.id
        await reply.close()
    assert len({message.key for message in rig.box.messages}) == len(rig.box.messages)


@demanded("reactions")
async def test_feedback_names_the_answer_and_can_be_taken_back(rig: Rig) -> None:
    for topic in (0, 7) if "topics" in rig.can else (0,):
        asked, posts, known = await rig.say("work", topic), Memory(f"r{topic}"), len(rig.box.messages)
        await rig.channel.reply(rig.thread(topic), posts, to=asked.id).finish(Final("the answer"))
        rig.rate("👍", topic)
        good = await rig.box.next(known + 1)
        rig.unrate("👍", topic)
        gone = await rig.box.next(known + 2)
        rig.rate("👎", topic)
        bad = await rig.box.next(known + 3)
        found = [(message.kind, message.text) for message in (good, gone, bad)]
        assert found == [(Kind.FEEDBACK, "up"), (Kind.FEEDBACK_REMOVED, "up"), (Kind.FEEDBACK, "down")]
        shown = (posts.rows[0] or "").partition("/")[0]
        assert {message.reply_to for message in (good, gone, bad)} == {shown}
        assert {message.author.id for message in (good, gone, bad)} == {asked.author.id}
        assert not any(message.author.bot for message in (good, gone, bad))
    assert len({message.key for message in rig.box.messages}) == len(rig.box.messages)


@demanded("titles")
async def test_a_title_is_shown_at_its_thread(rig: Rig) -> None:
    asked = await rig.begin_thread("please sum up the report of the quarter")
    await rig.channel.reply(asked.thread, Memory(), to=asked.id, asker=asked.author.id).finish(Final("done"))
    assert isinstance(rig.channel, TitleSetter)
    await rig.channel.set_title(asked.thread, "Quarter " * 100)
    assert rig.title(asked.thread).startswith("Quarter Quarter")
    await rig.channel.set_title(rig.thread(), "A chat has no title")


@demanded("title_events")
async def test_a_title_of_a_person_is_an_event(rig: Rig) -> None:
    """The service then leaves it."""
    asked = await rig.begin_thread("please sum up the report of the quarter")
    await rig.channel.reply(asked.thread, Memory(), to=asked.id, asker=asked.author.id).finish(Final("done"))
    rig.retitle(asked.thread, "My own title")
    named = await rig.box.next(1, Kind.TITLE)
    assert (named.text, named.thread, named.author.id) == ("My own title", asked.thread, asked.author.id)


@demanded("titles")
async def test_a_title_of_a_person_stays_where_no_event_tells_of_it(rig: Rig) -> None:
    asked = await rig.begin_thread("please sum up the report of the quarter")
    await rig.channel.reply(asked.thread, Memory(), to=asked.id, asker=asked.author.id).finish(Final("done"))
    rig.retitle(asked.thread, "My own title")
    await rig.say("thanks")  # what the platform told before has come
    assert isinstance(rig.channel, TitleSetter)
    if "title_events" not in rig.can:
        await rig.channel.set_title(asked.thread, "Quarter")
    assert rig.title(asked.thread) == "My own title"


async def test_a_platform_without_titles_says_so(rig: Rig) -> None:
    assert isinstance(rig.channel, TitleSetter) == ("titles" in rig.can)


async def erased(rig: Rig) -> tuple[Memory, str | None]:
    """Have a person delete a reply that is half shown; return what is stored of it, and the message's id."""
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await settled(rig, "Half")
    await reply.close()
    first = posts.rows[0]
    rig.erase()
    return posts, first


# Case 20 of docs/cases.md
@demanded("erase", "edits")
async def test_a_deleted_reply_is_posted_again_complete(rig: Rig) -> None:
    posts, first = await erased(rig)
    assert rig.visible() == []
    await deliver(rig, Final("The whole."), posts)
    assert rig.visible() == ["The whole."]
    assert posts.rows[0] != first


@demanded("erase", "missing")
async def test_a_deleted_reply_is_still_known_when_the_platform_tells_of_it_later(rig: Rig) -> None:
    posts, first = await erased(rig)
    await deliver(rig, Final("The whole."), posts)
    assert posts.rows.deleted == [first]


# ---------------------------------------------------------------- pings


@demanded("mentions", "topics")
async def test_a_ping_mentions_the_person_in_a_group_and_nobody_in_a_direct_chat(rig: Rig) -> None:
    for topic in (7, 0):
        asked = await rig.say("this takes long", topic)
        answer = rig.channel.reply(asked.thread, Memory(f"r{topic}"), to=asked.id, asker=asked.author.id)
        await answer.finish(Final("The answer."))
        assert rig.pinged(topic) == []
        ping = rig.channel.reply(asked.thread, Memory(f"p{topic}"), to=asked.id, asker=asked.author.id)
        await ping.finish(Final("It is done.", mention=asked.author.id))
        await settled(rig, "It is done.", topic)
        assert list(rig.pinged(topic)) == [asked.author.id] * (topic != 0)


@demanded("topics")
async def test_a_channel_says_whether_it_can_mention(rig: Rig) -> None:
    assert rig.channel.limits.mentions == ("mentions" in rig.can)


@demanded("topics")
async def test_model_text_notifies_nobody(rig: Rig) -> None:
    person = (await rig.say("hello", 7)).author
    name = (await rig.channel.enrich(rig.box.messages[0], 0)).author.name
    names = f"@{name} @{name.lower()} @everyone @here @all @channel [x](tg://user?id={person.id})"
    marks = f"<@{person.id}> <@!{person.id}> <!{person.id}> <!channel> <!everyone> <!here|here> <!subteam^S1> <@&1>"
    tags = f'<at id={person.id}></at> <at id="all">all</at> <at user_id="{person.id}">x</at> <at user_id="all">x</at>'
    text = f"{names}\n{marks}\n{tags}\n\n- {marks}\n- {tags}\n\n| a |\n|---|\n| {marks} |"
    reply = rig.channel.reply(rig.thread(7), Memory("r1"))
    reply.show(Text(text))
    if "live" in rig.can:
        await settled(rig, "everyone", 7)
    assert list(rig.pinged(7)) == []
    await reply.finish(Final(f"{text}\n\nThat is all."))
    await settled(rig, "That is all.", 7)
    assert list(rig.pinged(7)) == []
    await ask(rig, Ask("ask-3", text, (f"<@{person.id}>", "@everyone")), topic=7)
    assert list(rig.pinged(7)) == []
