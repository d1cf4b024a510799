"""DingTalk: who quotes a message of the bot answers that one, whatever else is open in the chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rigs.dingtalk import DingTalkRig
from tests.support.service_process import ask
from tests.support.thread_talk import TOPIC, ThreadTalk, calls, question, tool

pytestmark = pytest.mark.usefixtures("bubblewrap")


async def test_a_quoted_question_is_the_one_that_is_answered(tmp_path: Path) -> None:
    """Two background agents ask; the words go to the one whose card is quoted, also after a kill."""
    async with ThreadTalk.open(tmp_path, "dingtalk", sandbox={}) as talk:
        rig = talk.service.rigs["dingtalk"]
        assert isinstance(rig, DingTalkRig)
        titles = ("market", "money")
        asked = {title: ask(steps=[question(f"Which {title}?")], text=f"the {title} is large") for title in titles}
        work = {"kind": "general-purpose", "background": True}
        begun = [tool("task", description=title, prompt=prompt, **work) for title, prompt in asked.items()]
        talk.say(ask(steps=[calls(*begun)], text="delegated"))
        for title in titles:
            await talk.shows(f"Which {title}?")
        await talk.service.quiet()
        await talk.service.restart()
        shown = [each for each in rig.server.shown if each.chat == rig.chat(TOPIC)]
        [card] = [each for each in shown if "Which money?" in rig.server.text_of(each)]
        rig.server.quote("the other one", card)
        await talk.shows("the money is large")
        assert not talk.count("For which one is this?")
        assert not talk.count("the market is large")
        [answer] = [each for each in talk.last_request("the other one").messages if each["role"] == "tool"]
        assert answer["content"] == "the other one"
