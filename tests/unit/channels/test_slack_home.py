"""Slack's Home tab: it is shown to who opens it, and a press there is a click in the direct chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.messages import Kind, Thread
from channels.base import Home, HomeItem, HomePage, Refused
from tests.fakes.slack import JANE, OPS, TEAM
from tests.support.rigs.registry import ready, until
from tests.support.rigs.slack import DIRECT, SlackRig

CHAT, ROOM = Thread("slack", TEAM, DIRECT), Thread("slack", TEAM, OPS, "1.2")
HOME = Home(
    "2 questions wait for you.",
    (
        HomeItem("waiting:7", "7. May I run <@U1> *this*?", ROOM, "for <@U2>", "rm -r /tmp/x", ("Approve", "Deny")),
        HomeItem("waiting:8", "8. Which colour?", None, "our direct chat"),
    ),
    "Write !waiting to me.",
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    async with SlackRig.start(tmp_path) as made:
        await ready(made)
        yield made


async def show(rig: SlackRig, home: Home) -> None:
    assert isinstance(rig.channel, HomePage)
    await rig.channel.show_home(CHAT, JANE, home)


async def test_opening_the_tab_is_told_and_only_that_tab(rig: SlackRig) -> None:
    rig.server.open_home(tab="messages")
    rig.server.open_home()
    message = await rig.box.next(1)
    assert (message.kind, message.thread, message.author.id, message.private) == (Kind.HOME, CHAT, JANE, True)
    rig.server.open_home()
    again = await rig.box.next(2)
    assert again.key != message.key


async def test_the_tab_shows_texts_as_they_are_and_a_button_for_each_answer(rig: SlackRig) -> None:
    await show(rig, HOME)
    shown = rig.server.home()
    for words in (
        "2 questions wait",
        "May I run <@U1> *this*?",
        "rm -r /tmp/x",
        "Which colour?",
        "!waiting",
        f"<#{OPS}>",
        "for &lt;@U2&gt;",
    ):
        assert words in shown
    assert shown.count("[") == 2
    await show(rig, Home("Nothing waits for you."))
    assert rig.server.home() == "Nothing waits for you."


async def test_a_press_is_a_click_in_the_direct_chat_and_the_tab_is_asked_for_again(rig: SlackRig) -> None:
    await show(rig, HOME)
    pressed = rig.server.press_home("Approve")
    click, opened = await rig.box.next(1), await rig.box.next(2)
    assert (click.kind, click.target, click.text) == (Kind.CLICK, "waiting:7", "Approve")
    assert (click.thread, click.private, click.author.id) == (CHAT, True, JANE)
    assert (opened.kind, opened.thread) == (Kind.HOME, CHAT)
    await until(lambda: rig.server.acked(pressed))
    assert not rig.server.calls_of("chat.update")
    assert not rig.server.calls_of("chat.postEphemeral")


async def test_the_longest_page_keeps_within_the_limits(rig: SlackRig) -> None:
    items = tuple(
        HomeItem(
            f"waiting:{n}", "words " * 250, ROOM, "where " * 50, "x" * 1500, tuple(f"option {i}" for i in range(30))
        )
        for n in range(10)
    )
    await show(rig, Home("heading " * 40, items, "foot " * 100))
    assert "option 29" in rig.server.home()


async def test_an_app_without_the_tab_is_refused(rig: SlackRig) -> None:
    rig.server.home_enabled = False
    with pytest.raises(Refused, match="not_enabled"):
        await show(rig, HOME)
