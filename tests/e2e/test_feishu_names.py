"""Feishu tells no names in its events: those who press are called by their name, or a colleague where it may not be
read; nobody ever reads an opaque id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.feishu_world import JANE
from tests.support.rigs.feishu import FeishuRig
from tests.support.service_process import ask, bash
from tests.support.thread_talk import ThreadTalk, calls, delegate, tool

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.mark.parametrize("may_read", [True, False])
async def test_a_person_is_called_by_name_or_a_colleague_and_never_by_an_opaque_id(
    tmp_path: Path, may_read: bool
) -> None:
    async with ThreadTalk.open(tmp_path, "feishu", permissions={"ask": ["bash"]}, sandbox={}) as talk:
        rig = talk.service.rigs["feishu"]
        assert isinstance(rig, FeishuRig)
        if not may_read:
            rig.server.scopes -= {"contact:user.base:readonly", "contact:contact.base:readonly"}
        deploys = ask(steps=[calls(tool("bash", command="echo deployed"))], text="It is deployed")
        talk.say(delegate("deploy", deploys, text="delegated"))
        await talk.shows("echo deployed")
        await talk.service.quiet()
        talk.press("Approve")
        await talk.shows("It is deployed")
        await talk.service.quiet()
        talk.say(ask(steps=[bash("echo again")], text="again"))
        await talk.shows("echo again")
        await talk.service.quiet()
        rig.mutter("!waiting")
        await talk.service.quiet()
        shown = "\n".join([*talk.visible(), *rig.visible()])
        assert JANE not in shown
        assert ("a colleague" in shown) != may_read
        assert " for Jane" in shown or not may_read
