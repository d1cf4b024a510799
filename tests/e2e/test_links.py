"""Linked accounts in the running service: each platform with the next one, and with the console."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.model_script import without_directives
from tests.fakes.server import until
from tests.support.all_platforms import AllPlatforms
from tests.support.rigs.slack import SlackRig
from tests.support.service_process import ask, bash
from tests.support.thread_talk import PLATFORMS, TOPIC

pytestmark = pytest.mark.usefixtures("bubblewrap")
NEXT = dict(zip(PLATFORMS, (*PLATFORMS[1:], PLATFORMS[0]), strict=True))


class Person:
    """Jane on one platform."""

    def __init__(self, service: AllPlatforms, name: str) -> None:
        self.service, self.rig, self.name = service, service.rigs[name], name

    def say(self, text: str) -> None:
        self.rig.mutter(text)

    def text(self) -> str:
        return "\n".join(without_directives(each) for each in self.rig.visible())

    async def shows(self, words: str) -> None:
        await until(lambda: words in self.text(), what=f"{words!r} on {self.name}: {self.text()}")

    async def press(self, label: str) -> None:
        await until(lambda: label in self.rig.offers(), what=f"the button {label}")
        await self.service.quiet()
        self.rig.press(label)


@pytest.mark.parametrize("name", ["slack", "feishu"])
async def test_accounts_are_linked_across_kills_and_answer_what_waits_for_each_other(tmp_path: Path, name: str) -> None:
    """Killed after the code, between both consents, after the link, and after an answer; nobody else gets anywhere."""
    limits = {"attempts": 50}
    async with AllPlatforms.open(
        tmp_path, (name, NEXT[name]), permissions={"ask": ["bash"]}, limits=limits, sandbox={}
    ) as service:
        first, second = Person(service, name), Person(service, NEXT[name])
        first.say("!link")
        await first.shows("The code works once")
        await service.restart()
        [(code,)] = service.rows("SELECT code FROM link_codes")
        second.say(f"!link {code}")
        await second.shows("Are both accounts yours?")
        await service.restart()
        await second.press("Both are mine")
        await first.shows("has sent your code")
        await service.restart()
        second.say(f"!link {code}")
        await second.shows("I don't know this code")
        await first.press("Both are mine")
        await second.shows("is linked with this account")
        await service.restart()
        assert len(service.rows("SELECT 1 FROM account_links")) == 2

        first.rig.mutter(ask(steps=[bash("echo deployed")], text="it is deployed"), TOPIC, mention=True)
        await until(lambda: bool(service.rows("SELECT 1 FROM questions WHERE state='open'")), what="the approval")
        await service.quiet()
        second.say("!waiting")
        await second.shows("echo deployed")
        await second.press("Approve")
        await until(lambda: not service.rows("SELECT 1 FROM questions WHERE state='open'"), what="the answer")
        await service.restart()
        await service.shows(name, "it is deployed", TOPIC, 40)
        by = service.rows("SELECT q.answered_by=r.requester FROM questions q JOIN runs r ON r.id=q.run")
        assert by == [(1,)], "it is the answer of the account that was asked"

        second.say("!unlink")
        await first.shows("is not linked with this account any more")
        first.rig.mutter(ask(steps=[bash("echo again")], text="done again"), TOPIC, mention=True)
        await until(lambda: bool(service.rows("SELECT 1 FROM questions WHERE state='open'")), what="the approval")
        await service.quiet()
        second.say("!waiting")
        await second.shows("Nothing waits for you")
        assert service.rows("SELECT count(*) FROM outbox WHERE state=3") == [(0,)]


async def test_slacks_home_shows_and_answers_what_waits_for_a_linked_account(tmp_path: Path) -> None:
    limits = {"attempts": 50}
    async with AllPlatforms.open(
        tmp_path, ("slack", "telegram"), permissions={"ask": ["bash"]}, limits=limits, sandbox={}
    ) as service:
        first, second = Person(service, "telegram"), Person(service, "slack")
        assert isinstance(second.rig, SlackRig)
        first.say("!link")
        await first.shows("The code works once")
        [(code,)] = service.rows("SELECT code FROM link_codes")
        second.say(f"!link {code}")
        await second.press("Both are mine")
        await first.press("Both are mine")
        await second.shows("is linked with this account")
        first.rig.mutter(ask(steps=[bash("echo deployed")], text="it is deployed"), TOPIC, mention=True)
        await until(lambda: bool(service.rows("SELECT 1 FROM questions WHERE state='open'")), what="the approval")
        await service.quiet()
        slack = second.rig.server
        slack.open_home()
        await until(lambda: "echo deployed" in slack.home(), what="the call on the Home tab")
        assert "” on Telegram" in slack.home(), "it says where"
        slack.press_home("Approve")
        await service.shows("telegram", "it is deployed", TOPIC, 40)
        await until(lambda: "Nothing waits for you" in slack.home(), what="the page after it")
