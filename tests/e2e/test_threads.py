"""One thread, one ledger: what is posted beside a conversation is known to it, and text finds its question."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bot.database.database import Database
from bot.journey.questions import close_open_questions
from channels.shared.reply_layout import LABELS
from tests.fakes.model_script import text_of
from tests.fakes.server import until
from tests.support.service_process import ask
from tests.support.thread_talk import ThreadTalk, calls, delegate, question, tool

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.mark.parametrize("name", ["telegram", "console"])
async def test_the_thread_knows_what_was_posted_in_it_once_and_after_a_kill(tmp_path: Path, name: str) -> None:
    """A background agent, a background command, a reminder and a schedule, then plain questions."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say(delegate("market", ask(text="The market is large", delay_ms=300)))
        await talk.shows("The market is large")
        talk.say(ask(steps=[calls(tool("bash", command="echo three errors; exit 3", background=True))], text="started"))
        await talk.shows("Background task 2 failed")
        wanted = (("work", "Count the tickets"), ("reminder", "Stretch your legs"))
        for number, (kind, what) in enumerate(wanted, 1):
            yearly = tool("schedule", action="create", kind=kind, what=what, cron="0 4 1 1 *", time_zone="UTC")
            talk.say(ask(steps=[calls(yearly)], text="proposed"))
            await talk.shows(f"(number {number})")
            talk.say(f"!schedule confirm {number}")
            await talk.shows(f"Schedule {number} is active")
        talk.say("!schedule run 1")
        await talk.shows("You said: ")
        talk.say("!schedule run 2")
        await talk.shows("⏰ Stretch your legs")
        await talk.service.quiet()
        await talk.service.restart()
        await talk.say_and_read("which ones?")
        await talk.service.quiet()
        told = talk.last_words("which ones?")
        posts = ["The market is large", "three errors", "Count the tickets", "Stretch your legs"]
        assert sorted(posts, key=told.rindex) == posts
        for origin in ("task 1 “market”", "task 2 “echo three errors; exit 3”", "schedule 1", "schedule 2"):
            assert told.count(f"Posted here by {origin}") == 1
        talk.say("and then?")
        await talk.shows("and then?")
        await talk.service.quiet()
        assert talk.last_words("and then?").count("Posted here by task 1") == 1


@pytest.mark.parametrize("name", ["discord", "console"])
async def test_text_in_the_thread_answers_the_only_question_that_is_open(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say(delegate("market", ask(steps=[question("Which market do you mean?")], text="Asia is large")))
        shown = await talk.shows("Which market do you mean?")
        assert "Task 1" in shown
        assert "market" in shown.partition("Which")[0]
        await talk.service.quiet()
        talk.say("the Asian one")
        await talk.shows("Asia is large")
        [answer] = [each for each in talk.last_request("the Asian one").messages if each["role"] == "tool"]
        assert answer["content"] == "the Asian one"


@pytest.mark.parametrize("name", ["feishu", "console"])
async def test_text_that_fits_two_questions_is_asked_about_and_a_task_is_answered_by_name(
    tmp_path: Path, name: str
) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        titles = ("market", "money")
        asked = {title: ask(steps=[question(f"Which {title}?")], text=f"the {title} is large") for title in titles}
        work = {"kind": "general-purpose", "background": True}
        begun = [tool("task", description=title, prompt=prompt, **work) for title, prompt in asked.items()]
        talk.say(ask(steps=[calls(*begun)], text="delegated"))
        for title in titles:
            await talk.shows(f"Which {title}?")
        await talk.service.quiet()
        talk.say("the Asian one")
        await talk.shows("For which one is this?")
        assert not talk.count("is large")
        talk.press("Task 2 “money”")
        await talk.shows("the money is large")
        assert [each["content"] for each in talk.last_request("the Asian").messages if each["role"] == "tool"] == [
            "the Asian one"
        ]
        talk.say("!task 1 answer the European one")
        await talk.shows("the market is large")
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*) FROM questions WHERE state='open'") == [(0,)]


@pytest.mark.parametrize("name", ["slack", "dingtalk"])
async def test_the_words_of_others_are_worked_on_while_one_person_is_asked(tmp_path: Path, name: str) -> None:
    """Eve's words answer nothing of Jane's; her `/new` and `/stop` end nothing of it. Jane's own words do answer."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say(ask(steps=[question("Which format?")], text="the report is done"))
        await talk.shows("Which format?")
        await talk.service.quiet()
        talk.say("when is the release?", by=talk.other)
        await talk.shows("You said: ")
        await talk.service.quiet()
        assert "when is the release?" in talk.last_words("when is the release?")
        talk.say("!stop", by=talk.other)
        await talk.service.quiet()
        talk.say("!new", by=talk.other)
        await talk.shows("What I asked somebody else stays open.")
        talk.say("csv")
        await talk.shows("the report is done")
        [answer] = [each for each in talk.last_request("csv").messages if each["role"] == "tool"]
        assert str(answer["content"]).endswith("csv")  # where the history is read, above it stands the talk of others


@pytest.mark.parametrize("name", ["telegram", "dingtalk"])
async def test_one_persons_approval_is_ended_by_nobody_else(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        talk.say(ask(steps=[calls(tool("bash", command="echo deployed"))], text="it is done"))
        await talk.shows("echo deployed")
        await talk.service.quiet()
        for text in ("what is this?", "Approve"):
            talk.say(text, by=talk.other)
            await talk.shows(text)
        await talk.service.quiet()
        assert not talk.count("it is done")
        talk.press("Approve", by=talk.other)
        talk.press("Approve")
        await talk.shows("it is done")
        await talk.service.quiet()  # not said while the turn ends, which would take it
        talk.say("and now?")
        await talk.shows("and now?")
        assert "what is this?" in talk.last_words("and now?")


@pytest.mark.parametrize("name", ["dingtalk", "console"])
async def test_what_a_person_writes_while_their_approval_is_open_is_kept_and_read_after_it(
    tmp_path: Path, name: str
) -> None:
    """It is neither the answer nor refused, also across a kill; `/new` takes it into the new conversation."""
    patient = {"attempts": 50, "flood_seconds": 600}  # the answer waits for no look
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, limits=patient, sandbox={}) as talk:
        talk.say(ask(steps=[calls(tool("bash", command="echo deployed"))], text="it is done"))
        await talk.shows("echo deployed")
        await talk.service.quiet()
        talk.say("is the lamp on?")
        await talk.shows("I've kept your message")
        await until(lambda: not talk.service.rows("SELECT 1 FROM outbox WHERE state<2"), what="an empty outbox")
        assert not talk.count("it is done")
        assert talk.service.rows("SELECT sum(pending) FROM conversations") == [(0,)], "no look is due"
        await talk.service.restart()
        talk.say("Approve")
        await talk.shows("is the lamp on?")  # the model answers it with its words
        requests = talk.model.requests
        await talk.service.quiet()
        assert "deployed" in str([each for each in requests()[-1].messages if each["role"] == "tool"])
        assert str(requests()[-1].messages).count("is the lamp on?") == 1

        talk.say(ask(steps=[calls(tool("bash", command="echo again"))], text="done again"))
        await talk.shows("echo again")
        await talk.service.quiet()
        talk.say("is the door shut?")
        await talk.shows("I've kept your message", 2)
        talk.say("!new")
        await talk.shows("my open question is closed")
        await until(lambda: any("is the door shut?" in str(each.messages) for each in requests()), what="the question")
        await talk.service.quiet()
        assert "is the lamp on?" not in str(requests()[-1].messages), "it is read in the new conversation"
        assert not talk.count("done again")


@pytest.mark.parametrize("name", ["discord", "dingtalk"])
async def test_the_buttons_of_what_is_settled_disappear_and_its_message_says_so(tmp_path: Path, name: str) -> None:
    """Answered by words, closed by `/stop`, closed with a cancelled task, and closed right before a kill."""
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        talk.say(ask(steps=[question("Which format?", "csv", "pdf")], text="the report is done"))
        await talk.shows("Which format?")
        await until(lambda: "pdf" in talk.offers(), what="the buttons")
        await talk.service.quiet()
        talk.say("csv")
        await talk.shows("the report is done")
        await talk.service.quiet()
        assert "✓ csv" in await talk.shows("Which format?")
        assert not talk.offers()
        assert not talk.count(" chose "), "it is said once"

        talk.say(ask(steps=[calls(tool("bash", command="echo approved"))], text="it is approved"))
        await talk.shows("echo approved")
        await until(lambda: "Approve" in talk.offers(), what="the buttons")
        await talk.service.quiet()
        talk.say("Approve")
        await talk.shows("it is approved")
        await talk.service.quiet()
        assert (talk.count("✅ Approved by"), talk.count(" chose ")) == (1, 0), talk.visible()

        for number in (1, 2):
            talk.say(ask(steps=[calls(tool("bash", command=f"echo deploy {number}"))], text="it is done"))
            await talk.shows(f"echo deploy {number}")
            await until(lambda: "Approve" in talk.offers(), what="the buttons")
            await talk.service.quiet()
            if number == 1:
                talk.say("!stop")
            else:
                await _close_and_die(talk)
            await talk.shows("Closed without an answer", number)
            await talk.service.quiet()
            assert not talk.offers()

        talk.say(delegate("market", ask(steps=[question("Which market?", "Asia", "Europe")], text="it is large")))
        await talk.shows("Which market?")
        await until(lambda: "Asia" in talk.offers(), what="the buttons")
        await talk.service.quiet()
        talk.say("!task 1 cancel")
        await talk.shows("Closed without an answer", 3)
        await talk.service.quiet()
        assert "Asia" not in talk.offers()


@pytest.mark.parametrize("name", ["feishu", "dingtalk"])
async def test_the_buttons_of_a_question_that_nobody_answers_in_time_disappear(tmp_path: Path, name: str) -> None:
    """A question and an approval; the process is dead while their time ends."""
    soon = {"question_hours": 0.001, "approval_hours": 0.001, "attempts": 50}
    async with ThreadTalk.open(tmp_path, name, limits=soon, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        talk.say(ask(steps=[question("Which format?", "csv", "pdf")], text="it goes on alone"))
        await talk.shows("Which format?")
        await talk.shows("it goes on alone")
        await talk.service.quiet()
        assert "Nobody answered in time" in next(each for each in talk.visible() if "Which format?" in each)
        talk.say(ask(steps=[calls(tool("bash", command="echo deployed"))], text="not run"))
        await talk.shows("echo deployed")
        await until(lambda: "Approve" in talk.offers(), what="the buttons")
        await talk.service.kill()
        await until(lambda: talk.service.rows("SELECT max(until) FROM questions")[0][0] < time.time(), what="its time")
        await talk.service.start()
        await talk.shows("not run")
        await talk.service.quiet()
        assert not talk.offers()
        assert talk.count("Nobody answered in time, so") == 2, "each is said once"


@pytest.mark.parametrize("name", ["slack", "dingtalk"])
async def test_a_question_that_another_chat_is_asked_is_settled_in_both(tmp_path: Path, name: str) -> None:
    """Answered in the other chat, and closed where it came from; the same after a kill."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        rig = talk.service.rigs[name]
        entry = {"calls": ["bash"], "roles": ["member"], "requester": True, "chat": str(rig.thread().without_topic)}
        limits = {"attempts": 50}
        talk.service.configure({"team": {"approvals": [entry]}, "limits": limits})
        await talk.service.restart()
        for number, way in enumerate(("Approve", "!stop"), 1):
            talk.say(ask(steps=[calls(tool("bash", command=f"echo deploy {number}"))], text=f"deployed {number}"))
            await talk.shows(f"echo deploy {number}")
            await until(lambda: "Approve" in talk.offers() and "Approve" in rig.offers(), what="the buttons in both")
            await talk.service.quiet()
            if way == "Approve":
                rig.press("Approve")
                await talk.shows("deployed 1")
            else:
                talk.say(way)
                await talk.shows("Closed without an answer")
            await talk.service.quiet()
            assert not talk.offers(), "where it was asked"
            assert not rig.offers(), "in the other chat"
            shown = "\n".join([*rig.visible(), *rig.labels()])  # Discord shows the choice as a button
            assert ("✅ Approved by" if way == "Approve" else "Closed without an answer") in shown
            await talk.service.restart()
        assert not talk.count("deployed 2")


async def _close_and_die(talk: ThreadTalk) -> None:
    """Leave what a process leaves that was killed between the transaction that closes a question and the edit."""
    await talk.service.kill()
    [(conversation,)] = talk.service.rows("SELECT conversation FROM questions WHERE state='open'")
    async with Database(talk.service.data / "fawn.db") as store:
        assert await store.run(lambda execute: close_open_questions(execute, conversation, time.time()))
    await talk.service.start()


@pytest.mark.parametrize("name", ["telegram", "slack"])
@pytest.mark.parametrize("what", ["approval", "question", "plan", "stop"])
async def test_retry_repeats_the_words_of_the_request_also_after_presses(tmp_path: Path, name: str, what: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}, permissions={"ask": ["bash"]}) as talk:
        gone = {"errors": [401], "id": "end"}
        match what:
            case "approval":
                talk.say(ask(steps=[calls(tool("bash", command="true"))], **gone))
            case "question":
                talk.say(ask(steps=[question("Which one?", "this", "that")], **gone))
            case "plan":
                talk.say(f"!plan {ask(steps=[{'text': 'my plan'}], **gone)}")
            case _:
                talk.say(ask(steps=[question("Which one?", "this", "that")]))
        await until(lambda: len(talk.offers()) > 1, what="the question")
        await talk.service.quiet()
        if what == "stop":
            talk.say("!stop")
            await talk.shows("Stopped.")
        else:
            talk.press({"approval": "Approve", "question": "that", "plan": "Go"}[what])
            await until(lambda: LABELS["retry"] in talk.offers(), what="the failure")
        await talk.service.quiet()
        for again in ["!retry"] if what == "stop" else [LABELS["retry"], "!retry"]:
            if again == "!retry":
                talk.say(again)
            else:
                talk.press(again)
            await until(lambda: bool({"Deny", "this", "Go"} & {*talk.offers()}), what="the question again")
            await talk.service.quiet()
            talk.say("!stop")
            await until(lambda: not {"Deny", "this", "Go"} & {*talk.offers()}, what="no question")
            await talk.service.quiet()


@pytest.mark.parametrize("name", ["dingtalk", "wecom"])
async def test_in_a_chat_without_threads_another_persons_request_does_not_join_the_turn(
    tmp_path: Path, name: str
) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        wait = "while ! test -e /mnt/user-data/workspace/go; do sleep 0.1; done"
        talk.say(ask(steps=[calls(tool("bash", command=wait))], text="the build is green"))
        await until(lambda: len(talk.model.requests()) == 1, what="the turn")
        talk.say(ask(text="the release is on Friday", id="when?"), by=talk.other)
        await talk.shows("I'm still working for ")
        await talk.shows("the release is on Friday")
        talk.say(ask(text="on Friday, as I said", id="sure?"), by=talk.other)
        await talk.shows("on Friday, as I said")
        assert talk.count("I'm still working for ") == 1, "told once, as the work begins"
        next(talk.service.data.glob("threads/*/workspace")).joinpath("go").touch()
        await talk.shows("the build is green")
        await talk.service.quiet()
        [people, *_others] = talk.service.rows("SELECT people FROM runs ORDER BY id")
        assert talk.other not in people[0].split()
        talk.say("and now?")
        await until(lambda: "and now?" in text_of(talk.model.requests()[-1].messages[-1]), what="the next turn")
        assert "the release is on Friday" in talk.last_words("and now?"), "the thread knows it afterwards"
