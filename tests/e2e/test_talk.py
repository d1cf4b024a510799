"""Conversations with the bot: one run and one reply, steering, stop, commands, access."""

from __future__ import annotations

import asyncio
import re

import pytest

from bot.database.states import OutboxState
from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, bash, said

BOB = 77


# Cases 5 and 59 of docs/cases.md
async def test_redelivered_events_start_one_run(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    message = telegram.send(ask(text="just once"))
    update = {"message": message}
    telegram.redeliver(update, times=4)
    await telegram.wait(JANE, "just once")
    telegram.redeliver(update, times=2)
    await until(lambda: telegram.waiting() == 0)
    await service.quiet()
    assert len(model.requests()) == 1
    assert said(telegram, JANE) == ["just once"]


# Case 65 of docs/cases.md
@pytest.mark.usefixtures("bubblewrap")
async def test_a_second_message_steers_the_run(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    step = {"calls": [{"name": "ls", "args": {"path": "/mnt/user-data"}}]}
    telegram.send(ask(steps=[step], text="only the first", delay_ms=1200))
    await until(lambda: model.requests(), what="the first model call")
    telegram.send("also do B " + ask(text="both done"))
    heard = await telegram.wait(JANE, "also do B")
    assert heard.by_bot
    await telegram.wait(JANE, "both done")
    await service.quiet()
    contents = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "user"]
    assert any("also do B" in content for content in contents)
    assert len(said(telegram, JANE)) == 1


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.usefixtures("bubblewrap")
async def test_in_a_group_others_join_a_turn_by_a_reply_only(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    group, eve = -100, 78
    service = await start()
    wait = bash("while ! test -e /mnt/user-data/workspace/go; do sleep 0.1; done")
    telegram.send(f"@fawn_bot {ask(steps=[wait], text='the build is green')}", chat=group)
    working = await telegram.wait(group, "Running")
    telegram.send(f"@fawn_bot {ask(text='on Friday')}", chat=group, user=eve)
    told = await telegram.wait(group, "I'm still working for ")
    assert "To join in there, reply to my message." in told.text
    await telegram.wait(group, "on Friday")
    await until(lambda: not service.rows("SELECT 1 FROM runs WHERE id>1 AND state='running'"), what="its end")
    telegram.send("/retry@fawn_bot", chat=group, user=eve)
    await until(lambda: len(model.requests()) == 3, what="her own request again")
    telegram.send("as a PDF, please", chat=group, user=eve, reply_to=working.id)
    telegram.send("@fawn_bot and in colour", chat=group)
    await telegram.wait(group, "got it: and in colour")
    assert "got it: as a PDF, please" in str(said(telegram, group))
    next(service.data.glob("threads/*/workspace")).joinpath("go").touch()
    await until(lambda: "in colour" in str(model.requests()[-1].messages), what="the answer")
    await service.quiet()
    last = str(model.requests()[-1].messages)
    assert "as a PDF, please" in last
    assert "on Friday" not in last
    assert service.rows("SELECT people FROM runs ORDER BY id") == [(f"{JANE} {eve}",), (f"{eve}",), (f"{eve}",)]


async def test_messages_sent_into_a_stopped_turn_are_remembered(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    step = {"calls": [{"name": "ls", "args": {"path": "/mnt/user-data"}}]}
    telegram.send(ask(steps=[step], text="only the first", delay_ms=1000))
    await until(lambda: model.requests(), what="the first model call")
    telegram.send("also do B " + ask(text="never said", delay_ms=30_000))
    await until(lambda: len(model.requests()) == 2, what="the call with what was written")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped.")
    telegram.send("and now? " + ask(text="B, of course"))
    await telegram.wait(JANE, "B, of course")
    await service.quiet()
    contents = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "user"]
    assert len([content for content in contents if "also do B" in content]) == 1


# Case 66 of docs/cases.md
async def test_a_follow_up_after_the_last_model_call_starts_the_next_run(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(ask(tokens=20, tok_ms=60, word="one"))
    await telegram.wait(JANE, "one1")
    telegram.send(ask(text="two"))
    await telegram.wait(JANE, "one19")
    await telegram.wait(JANE, "two")
    await service.quiet()
    assert len(said(telegram, JANE)) == 2


# Case 9 of docs/cases.md
async def test_quick_messages_are_all_answered_in_order(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    for text in ("first question", "second question", "third question"):
        telegram.send(text)
    await until(lambda: any("third question" in text for text in said(telegram, JANE)))
    await service.quiet()
    asked = " ".join(str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "user")
    assert asked.index("first") < asked.index("second") < asked.index("third")


# Cases 67 and 48 of docs/cases.md
@pytest.mark.usefixtures("bubblewrap")
async def test_stop_ends_the_command_and_the_reply(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(steps=[bash("touch started; exec sleep 613")], text="never"))
    await until(lambda: list(service.data.glob("threads/*/workspace/started")), what="the command")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped")
    await until(lambda: not _running("sleep 613"), what="the end of the process")
    await service.quiet()
    telegram.send(ask(text="works again"))
    await telegram.wait(JANE, "works again")


@pytest.mark.usefixtures("bubblewrap")
async def test_a_turn_over_its_time_limit_ends_with_a_reason(telegram: FakeTelegram, start: Start) -> None:
    service = await start(limits={"turn_seconds": 2})
    telegram.send(ask(steps=[bash("exec sleep 615")], text="never"))
    shown = await telegram.wait(JANE, "longer than the limit")
    assert "longer than the limit of 2 s. What is done so far is kept." in shown.text
    await until(lambda: not _running("sleep 615"), what="the end of the process")
    telegram.send(ask(text="works again"))
    await telegram.wait(JANE, "works again")
    await service.quiet()


def _running(command: str) -> bool:
    import subprocess

    return subprocess.run(["pgrep", "-f", f"^{command}"], check=False, capture_output=True).returncode == 0


# Case 68 of docs/cases.md
async def test_only_the_requester_and_operators_can_stop_a_turn(telegram: FakeTelegram, start: Start) -> None:
    service = await start(channels={"telegram": {"access": {"open": True, "operators": ["99"]}}})
    group = -100
    telegram.send("@fawn_bot " + ask(text="slow", delay_ms=30_000), chat=group, user=JANE)
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='running'"))
    telegram.send("/stop@fawn_bot", chat=group, user=BOB)
    await telegram.wait(group, "Only the person who asked")
    assert service.rows("SELECT state FROM runs") == [("running",)]
    telegram.send("/stop@fawn_bot", chat=group, user=99)
    await telegram.wait(group, "Stopped.")
    await service.quiet()
    assert service.rows("SELECT state FROM runs") == [("stopped",)]


# Case 23 of docs/cases.md
async def test_commands_with_a_bot_name_are_recognised(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    telegram.send("/new@fawn_bot x", chat=-100)
    await telegram.wait(-100, "A fresh start")
    telegram.send("/new@other_bot", chat=-100)
    await until(lambda: telegram.waiting() == 0)
    await service.quiet()
    assert len(said(telegram, -100)) == 1
    assert not model.requests()


# Case 45 of docs/cases.md
async def test_commands_are_answered_without_a_run(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    await until(lambda: "app.ready" in service.log(), what="the end of the start")
    for text, words in {
        "/help": "/status",
        "/unknown": "don't know",
        "/stats": "Did you mean /status?",
        " /new": "A fresh start",
        "//new": "don't know",
        "/status": "All is well. I'm ready",
        "/models": "main",
        "/model": "main",
        "/model nope": "no model",
        "/retry": "Nothing to retry",
        "/stop": "Nothing is running",
        "/start": "/status",
    }.items():
        telegram.send(text)
        await telegram.wait(JANE, words)
        for shown in telegram.visible(JANE):
            telegram.remove(JANE, shown.id)
    await service.quiet()
    assert not model.requests()


async def test_new_begins_a_conversation_and_retry_repeats_the_request(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send("remember seven")
    await telegram.wait(JANE, "remember seven")
    await service.quiet()
    telegram.send("which number?")
    await until(lambda: len(model.requests()) == 2)
    assert "remember seven" in str(model.requests()[-1].messages)
    await service.quiet()
    telegram.send("/new")
    await telegram.wait(JANE, "A fresh start")
    telegram.send("and now?")
    await until(lambda: len(model.requests()) == 3)
    assert "remember seven" not in str(model.requests()[-1].messages)
    await service.quiet()
    telegram.send("/retry")
    await until(lambda: len(model.requests()) == 4)
    assert "and now?" in str(model.requests()[-1].messages[-1])


# Case 24 of docs/cases.md
async def test_a_reply_to_the_bots_answer_continues_its_conversation(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Also if a newer conversation was started in between."""
    service = await start()
    group = -100
    telegram.send("@fawn_bot remember seven", chat=group)
    answer = await telegram.wait(group, "remember seven")
    await service.quiet()
    telegram.send("/new@fawn_bot", chat=group)
    await telegram.wait(group, "A fresh start")
    telegram.send("which number?", chat=group, reply_to=answer.id)
    await until(lambda: len(model.requests()) == 2)
    assert "remember seven" in str(model.requests()[-1].messages)
    telegram.send("nobody asked the bot", chat=group)
    await until(lambda: telegram.waiting() == 0)
    await service.quiet()
    assert len(model.requests()) == 2


# Case 24 of docs/cases.md
async def test_answers_stay_in_their_forum_topic(telegram: FakeTelegram, start: Start) -> None:
    """Also case 69: two topics at once, and every call names its own."""
    service = await start()
    forum = -1005
    telegram.forum(forum, 11, 12)
    telegram.send("@fawn_bot " + ask(text="to eleven", delay_ms=300), chat=forum, topic=11)
    telegram.send("@fawn_bot " + ask(text="to twelve", delay_ms=300), chat=forum, topic=12)
    await asyncio.gather(telegram.wait(forum, "to eleven", topic=11), telegram.wait(forum, "to twelve", topic=12))
    await service.quiet()
    assert said(telegram, forum, 11) == ["to eleven"]
    assert said(telegram, forum, 12) == ["to twelve"]
    calls = [call for call in telegram.calls_of(chat=forum) if call.method.lower().startswith("send")]
    assert {call.topic for call in calls} == {11, 12}


# Case 4 of docs/cases.md
async def test_a_paired_person_gets_access(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(channels={"telegram": {"access": {"open": False, "operators": ["99"]}}})
    telegram.send("hello?", chat=BOB)
    shown = await telegram.wait(BOB, "Send this code")
    code = re.search(r"runs me: (\w+)", shown.text)
    assert code
    assert not model.requests()
    assert (await service.fawn("pair", "list"))[1].count(code[1]) == 1
    assert (await service.fawn("pair", "accept", code[1]))[0] == 0
    await telegram.wait(BOB, "You're in!")
    await telegram.wait(BOB, "hello?")
    await service.quiet()
    telegram.send("hello again", chat=BOB)
    await telegram.wait(BOB, "hello again")
    await service.quiet()
    exit_code, words = await service.fawn("pair", "accept", code[1])
    assert exit_code == 1
    assert "unknown, used or older" in words
    assert (await service.fawn("pair", "revoke", "telegram", str(BOB)))[0] == 0
    count = len(model.requests())
    telegram.send("and now?", chat=BOB)
    await until(lambda: telegram.waiting() == 0)
    await service.quiet()
    assert len(model.requests()) == count


async def test_unknown_people_in_groups_are_told_once(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """The other half of case 44: no run, and no code where others could read it."""
    service = await start(channels={"telegram": {"access": {"open": False}}})
    telegram.send("@fawn_bot hello", chat=-100, user=BOB)
    await telegram.wait(-100, "I don't know you yet")
    telegram.send("@fawn_bot hello again", chat=-100, user=BOB)
    await until(lambda: telegram.waiting() == 0 and telegram.deliveries(-100))
    await service.quiet()
    [told] = said(telegram, -100)
    assert "code" not in told
    assert not model.requests()


# Case 80 of docs/cases.md
async def test_an_edit_before_the_turn_starts_counts(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(limits={"live_turns": 1})
    telegram.send(ask(text="holds the only place", delay_ms=2500), chat=500)
    await until(lambda: model.requests(), what="the first turn")
    message = telegram.send("the old text")
    await until(lambda: telegram.waiting() == 0)
    telegram.edit("the new text", message["message_id"])
    await telegram.wait(JANE, "the new text")
    await service.quiet()
    assert "the old text" not in str([r.messages for r in model.requests()])


@pytest.mark.usefixtures("bubblewrap")
async def test_an_edit_during_the_turn_steers_it(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    step = {"calls": [{"name": "ls", "args": {"path": "/mnt/user-data"}}]}
    message = telegram.send("delete the DEV tables " + ask(steps=[step], text="done", delay_ms=1500, id="1"))
    await until(lambda: model.requests(), what="the first model call")
    telegram.edit("delete the TEST tables, not DEV " + ask(text="TEST it is", id="2"), message["message_id"])
    await telegram.wait(JANE, "TEST it is")
    await service.quiet()
    told = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "user"]
    assert any("I changed it to: delete the TEST tables" in text for text in told)
    assert service.rows("SELECT count(*) FROM runs") == [(1,)]


# Case 49 of docs/cases.md
async def test_queued_users_are_told_their_position(telegram: FakeTelegram, start: Start) -> None:
    service = await start(limits={"live_turns": 1})
    telegram.send(ask(text="slow one", delay_ms=5000), chat=500)
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='running'"))
    telegram.send(ask(text="was kept"), chat=501)
    waiting = await telegram.wait(501, "busy with 1 other conversation. You're number 1;")
    done = await telegram.wait(501, "was kept")
    assert done.id == waiting.id
    await service.quiet()
    assert said(telegram, 501) == ["was kept"]


# Case 85 of docs/cases.md
async def test_a_long_paste_is_one_turn(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    text = " ".join(f"word{n}" for n in range(1300))
    telegram.paste(text)
    await until(lambda: model.requests())
    await service.quiet(30)
    assert len(model.requests()) == 1
    asked = [m for m in model.requests()[0].messages if m["role"] == "user"]
    assert len(asked) == 1
    assert text in asked[0]["content"]


# Case 86 of docs/cases.md
async def test_unsupported_messages_are_answered_with_one_sentence(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send_sticker()
    await telegram.wait(JANE, "sticker")
    telegram.send_sticker()
    await until(lambda: len(said(telegram, JANE)) == 2, what="the second answer")
    await service.quiet()
    assert not model.requests()
    telegram.send_poll()
    await telegram.wait(JANE, "Poll: Lunch?")  # it has words


# Case 88 of docs/cases.md
async def test_a_message_of_a_form_that_nobody_knows_is_answered_with_one_sentence(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.say({"live_photo": {"file_id": "x", "file_unique_id": "y"}})  # without its size and duration
    await telegram.wait(JANE, "I can't read messages of this kind yet.")
    assert service.rows("SELECT count(*) FROM inbox WHERE state=3") == [(1,)], "operators can look at it"
    assert not model.requests()


async def test_too_many_messages_are_delayed_with_one_notice(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(limits={"flood_messages": 10, "flood_seconds": 5.0})
    for number in range(30):
        telegram.send(f"flood {number}.")
    telegram.send(ask(text="other person"), chat=501)
    await telegram.wait(501, "other person")
    await telegram.wait(JANE, "faster than I am")
    await service.quiet(40)
    assert sum("faster than I am" in text for text in said(telegram, JANE)) == 1
    asked = str(model.requests()[-1].messages) + str([r.messages for r in model.requests()])
    assert all(f"flood {number}." in asked for number in range(30))


# Case 84 of docs/cases.md
async def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send("@fawn_bot remember seven", chat=-200)
    await telegram.wait(-200, "remember seven")
    await service.quiet()
    telegram.migrate(-200, -1000200)
    await until(lambda: telegram.waiting() == 0)
    telegram.send("@fawn_bot which number?", chat=-1000200)
    await until(lambda: len(model.requests()) == 2)
    assert "remember seven" in str(model.requests()[-1].messages)
    await telegram.wait(-1000200, "which number?")


# Case 84 of docs/cases.md
async def test_a_bot_that_was_blocked_stops_trying(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(text="nobody reads this", delay_ms=500))
    await until(lambda: service.rows("SELECT 1 FROM runs"))
    telegram.block(JANE)
    await service.quiet()
    assert service.rows("SELECT state FROM outbox") == [(OutboxState.DEAD,)]
    count = len(telegram.calls)
    telegram.send(ask(text="Bob reads this"), chat=BOB)
    await telegram.wait(BOB, "Bob reads this")
    assert not [call for call in telegram.calls[count:] if call.chat == JANE]


# Case 35 of docs/cases.md
async def test_a_clarification_is_answered_after_a_restart(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    question = {"name": "ask_clarification", "args": {"question": "Which city?", "options": ["Bonn", "Köln"]}}
    telegram.send(ask(steps=[{"calls": [question]}], text="thank you"))
    shown = await telegram.wait(JANE, "Which city?")
    await service.quiet()
    await service.restart()
    telegram.send("/retry")
    await telegram.wait(JANE, "waiting for your answer")
    telegram.click(shown.buttons[1][1], shown.id)
    await telegram.wait(JANE, "thank you")
    await service.quiet()
    results = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert len(results) == 1
    assert "Köln" in results[0]
    telegram.send(ask(steps=[{"calls": [question]}], text="thanks again", id="2"))
    await until(lambda: sum(text.startswith("Which city?") for text in said(telegram, JANE)) == 2)
    await service.quiet()
    telegram.send("rather Aachen")
    await telegram.wait(JANE, "thanks again")
    await service.quiet()
    results = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert "Aachen" in results[-1]


GROUP = -1000300


async def test_the_talk_of_a_group_is_kept_as_context_after_the_group_was_told(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send("nobody uses the bot here yet", chat=GROUP, user=BOB)
    telegram.send("@fawn_bot hello " + ask(text="hello all"), chat=GROUP)
    await telegram.wait(GROUP, "hello all")
    telegram.send("this is not kept", chat=GROUP, user=BOB)
    told = await telegram.wait(GROUP, "I keep what is written in this group for 24 h")
    assert told.by_bot
    telegram.send("the port is 8080", chat=GROUP, user=BOB)
    edited = telegram.send("the host is old", chat=GROUP, user=BOB)
    telegram.edit("the host is new", edited["message_id"], chat=GROUP)
    telegram.send("@fawn_bot use that port " + ask(text="port it is"), chat=GROUP)
    await telegram.wait(GROUP, "port it is")
    await service.quiet()
    seen = str(model.requests()[-1].messages)
    assert "the port is 8080" in seen
    assert "the host is new" in seen
    assert not [text for text in ("nobody uses", "this is not kept", "the host is old") if text in seen]
    telegram.send("/privacy@fawn_bot", chat=GROUP)
    await telegram.wait(GROUP, "without addressing me for 24 h")
    assert [text for text in said(telegram, GROUP) if "I keep what is written" in text] == [told.text]


async def test_the_talk_of_a_group_is_not_kept_where_the_operator_says_so(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(limits={"talk_hours": 0})
    for words in ("one", "two"):
        telegram.send(f"@fawn_bot {words} " + ask(text=f"done {words}"), chat=GROUP)
        await telegram.wait(GROUP, f"done {words}")
        telegram.send("we agreed on blue", chat=GROUP, user=BOB)
    await service.quiet()
    assert "blue" not in str(model.requests()[-1].messages)
    assert service.rows("SELECT 1 FROM overheard UNION SELECT 1 FROM listening") == []
