"""`/waiting` on every platform: what waits elsewhere is listed in the direct chat, and answered there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.base.display_names import display_name
from bot.database.database import Database
from bot.storage import people
from tests.e2e.test_skills import RUN, skill_text
from tests.fakes.model_script import without_directives
from tests.fakes.server import until
from tests.support.service_process import ask
from tests.support.thread_talk import ThreadTalk, calls, question, tool

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.parametrize("name", ["telegram", "dingtalk"])]


class Direct:
    """Jane's direct chat with the bot."""

    def __init__(self, talk: ThreadTalk) -> None:
        self._talk, self._rig = talk, talk.service.rigs[talk.name]

    def say(self, text: str) -> None:
        self._rig.mutter(text)

    def press(self, label: str) -> None:
        self._rig.press(label)

    def offers(self) -> list[str]:
        return self._rig.offers()

    def text(self) -> str:
        return "\n".join(without_directives(each) for each in self._rig.visible())

    async def shows(self, words: str) -> None:
        await until(lambda: words in self.text(), what=f"{words!r} in the direct chat")

    def numbers(self) -> list[int]:
        """Return the numbers of what was listed, in order."""
        return [int(number) for (number,) in self._talk.service.rows("SELECT number FROM waiting_numbers ORDER BY 1")]


def run(command: str, text: str) -> str:
    return ask(steps=[calls(tool("bash", command=command))], text=text)


async def test_an_approval_is_given_from_the_direct_chat_and_survives_a_kill(tmp_path: Path, name: str) -> None:
    """Its own chat says who gave it; a number never hits another call; a group is told nothing."""
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        direct = Direct(talk)
        direct.say("!waiting")
        await direct.shows("Nothing waits for you")
        talk.say(run("echo first", "the first is done"))
        await talk.shows("echo first")
        await talk.service.quiet()
        direct.say("!waiting")
        await direct.shows("echo first")
        await talk.service.quiet()
        assert f"” on {display_name(name)} · “" in direct.text(), "the title of the group, not its id"
        direct.press("Approve")
        await until(lambda: not talk.service.rows("SELECT 1 FROM questions WHERE state='open'"), what="the answer")
        await talk.service.restart()
        await talk.shows("the first is done")
        await talk.shows(" chose ")
        shown = talk.visible()
        places = [next(at for at, each in enumerate(shown) if text in each) for text in (" chose ", "first is done")]
        assert places == sorted(places), "who chose it stands above the result"

        talk.say(run("echo second", "the second is done"))
        await talk.shows("echo second")
        await talk.service.quiet()
        talk.say("!waiting")
        await talk.shows("only in our direct chat")
        direct.say("!waiting")
        await direct.shows("echo second")
        await talk.service.quiet()
        old, new = direct.numbers()
        for words, answer in ((f"{old} Approve", "any more"), (f"{new} 1", "takes one of these answers")):
            direct.say(f"!waiting {words}")
            await direct.shows(answer)
        assert not talk.count("the second is done")
        direct.say(f"!waiting {new} approve")
        await talk.shows("the second is done")
        await direct.shows("Answered")
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


async def test_words_approve_and_deny_where_the_call_waits_and_from_the_direct_chat(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        direct = Direct(talk)
        direct.say("!approve")
        await direct.shows("No approval waits here")
        talk.say(run("echo first", "the first is done"))
        await talk.shows("echo first")
        await talk.service.quiet()
        talk.say("!approve")
        await talk.shows("the first is done")
        talk.say(run("echo second", "the second is over"))
        await talk.shows("echo second")
        await talk.service.quiet()
        direct.say("!deny")
        await talk.shows("the second is over")
        await talk.service.quiet()
        answers = talk.service.rows("SELECT answer FROM questions ORDER BY asked")
        assert answers == [("Approve",), ("Deny",)]
        assert not {"Approve", "Deny"} & {*talk.offers()}, "the buttons go with the question"


async def test_questions_and_proposals_are_answered_from_the_direct_chat(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        direct = Direct(talk)
        yearly = tool("schedule", action="create", what="Read the news", cron="0 4 1 1 *", time_zone="UTC")
        talk.say(ask(steps=[calls(yearly)], text="proposed"))
        await talk.shows("Shall I")
        talk.say(ask(steps=[question("Which market?", "Asia", "Europe")], text="the market it is"))
        await talk.shows("Which market?")
        await talk.service.quiet()
        direct.say("!waiting")
        await direct.shows("Which market?")
        await talk.service.quiet()
        assert "Read the news" in direct.text()
        direct.press("Europe")
        await talk.shows("the market it is")
        await until(lambda: "Europe" not in talk.offers(), what="the question without its buttons")
        assert "Europe" in str(talk.last_request("Which market?").messages[-1])
        direct.press("Yes")
        await talk.shows("Schedule 1 is active")


async def test_what_waits_is_handed_over_by_buttons_and_answered_after_a_kill_until_it_is_taken_back(
    tmp_path: Path, name: str
) -> None:
    """The deputy approves once and never for later; before the hand-over and after its end they approve nothing."""
    async with ThreadTalk.open(tmp_path, name, permissions={"ask": ["bash"]}, sandbox={}) as talk:
        direct = Direct(talk)
        direct.say("!waiting")
        await direct.shows("Nothing waits for you")
        talk.say("hello", by=talk.other)
        await talk.shows("You said: ")
        await talk.service.quiet()
        talk.say(run("echo first", "the first is done"))
        await talk.shows("echo first")
        await talk.service.quiet()
        talk.press("Approve", by=talk.other)
        direct.press("Hand over…")
        await direct.shows("To whom do you hand over?")
        await until(lambda: any(label.startswith("@") for label in direct.offers()), what="a name")
        await talk.service.quiet()
        [deputy] = [label for label in direct.offers() if label.startswith("@")]
        direct.press(deputy)
        await direct.shows("Until when does")
        await talk.service.quiet()
        direct.press("1 week")
        await direct.shows("may answer in your place")
        await talk.service.quiet()
        assert talk.service.rows("SELECT state FROM questions") == [("open",)]
        await talk.service.restart()
        talk.press("Allow in this conversation", by=talk.other)
        talk.press("Approve", by=talk.other)
        await talk.shows("the first is done")
        await talk.service.quiet()
        assert talk.service.rows("SELECT answer FROM questions") == [("Approve",)]
        assert talk.service.rows("SELECT count(*) FROM permission_grants") == [(0,)]
        [run_of] = talk.service.rows("SELECT requester FROM runs ORDER BY id DESC LIMIT 1")
        assert run_of != (talk.other,), "the work stays that of the one who asked for it"

        direct.press("Take back")
        await direct.shows("does not stand in for you any more")
        talk.say(run("echo second", "the second is done"))
        await talk.shows("echo second")
        await talk.service.quiet()
        talk.press("Approve", by=talk.other)
        await talk.service.quiet()
        assert not talk.count("the second is done")
        direct.say(f"!waiting hand over to {talk.other} until tomorrow")
        await until(lambda: direct.text().count("may answer in your place") == 2, what="the second hand-over")
        await talk.service.quiet()
        talk.say("Approve", by=talk.other)  # in words
        await talk.shows("the second is done")
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


async def test_an_operator_lets_a_stranger_in_and_accepts_a_skill_from_the_list_of_what_waits(
    tmp_path: Path, name: str
) -> None:
    """By buttons, after a kill. The stranger's code is stored while the service is dead, as if they had written."""
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        direct = Direct(talk)
        direct.say(ask(text="good evening"))
        await direct.shows("good evening")
        files = [{"path": "SKILL.md", "content": skill_text()}, {"path": "run.py", "content": RUN}]
        proposes = {"name": "propose_skill", "args": {"name": "add-numbers", "files": files}}
        talk.say(ask(steps=[calls(proposes)], text="proposed"))
        await talk.shows("proposed")
        await talk.service.quiet()
        [(jane,)] = talk.service.rows("SELECT requester FROM runs LIMIT 1")
        await talk.service.kill()
        stranger = Thread(name, talk.service.rigs[name].thread().workspace, "D9")
        wrote = Message(stranger, "s1", "1", Author("S9", "Sam"), "hi", 1.0, private=True, origin=Origin.PERSON)
        async with Database(talk.service.data / "fawn.db") as store:
            await store.run(lambda execute: people.store_code(execute, wrote, "ABCD2345", time.time() + 3600))
        talk.service.configure({"channels": {name: {"access": {"open": True, "pairing": True, "operators": [jane]}}}})
        await talk.service.start()
        direct.say("!waiting")
        await direct.shows("ABCD2345")
        await direct.shows("add-numbers")
        await until(lambda: "Let in" in direct.offers() and "Accept" in direct.offers(), what="the buttons")
        direct.press("Let in")
        await until(
            lambda: talk.service.rows("SELECT allowed FROM people WHERE person='S9'") == [(1,)], what="their way in"
        )
        direct.press("Accept")
        await direct.shows("is installed.")
