"""Slack's Home tab shows what `/waiting` lists, and takes the answer there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.fakes.slack import FakeSlack
from tests.support.service_process import ask
from tests.support.thread_talk import ThreadTalk, calls, question, tool

pytestmark = pytest.mark.usefixtures("bubblewrap")


def server_of(talk: ThreadTalk) -> FakeSlack:
    server = talk.service.rigs["slack"].server  # type: ignore[attr-defined]  # the rig of Slack has its fake
    assert isinstance(server, FakeSlack)
    return server


async def shows(slack: FakeSlack, words: str) -> None:
    await until(lambda: words in slack.home(), what=f"{words!r} on the Home tab")


async def test_what_waits_is_shown_and_answered_on_the_home_tab(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "slack", permissions={"ask": ["bash"]}, sandbox={}) as talk:
        slack = server_of(talk)
        slack.open_home()
        await shows(slack, "Nothing waits for you")
        talk.say(ask(steps=[calls(tool("bash", command="echo first"))], text="the first is done"))
        await talk.shows("echo first")
        slack.open_home()
        await shows(slack, "echo first")
        assert "!waiting" in slack.home()
        await talk.service.quiet()
        slack.press_home("Approve")
        await talk.shows("the first is done")
        await shows(slack, "Nothing waits for you")

        talk.say(ask(steps=[question("Which market?", "Asia", "Europe")], text="the market it is"))
        await talk.shows("Which market?")
        slack.open_home()
        await shows(slack, "Which market?")
        await talk.service.quiet()
        talk.press("Asia")
        await talk.shows("the market it is")
        slack.press_home("Europe")  # it was answered meanwhile
        await shows(slack, "Nothing waits for you")
        assert "Asia" in str(talk.last_request("Which market?").messages[-1])


async def test_a_call_that_the_page_does_not_show_whole_is_not_approved_there(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "slack", permissions={"ask": ["bash"]}, sandbox={}) as talk:
        slack = server_of(talk)
        talk.say(ask(steps=[calls(tool("bash", command="echo " + "x" * 3000))], text="done"))
        await talk.shows("The call continues")
        slack.open_home()
        await shows(slack, "too long for this page")
        assert "[Approve]" not in slack.home()


async def test_a_stranger_sees_how_to_be_let_in_and_nothing_else(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "slack", permissions={"ask": ["bash"]}, sandbox={}) as talk:
        slack = server_of(talk)
        talk.say(ask(steps=[calls(tool("bash", command="echo first"))], text="done"))
        await talk.shows("echo first")
        slack.person("UEVE", is_restricted=True)
        slack.open_home("UEVE")
        await until(lambda: slack.home("UEVE"), what="the page of a stranger")
        assert slack.home("UEVE").startswith("We have not met yet")
        slack.open_home()
        await shows(slack, "echo first")
