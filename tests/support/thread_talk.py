"""A thread of one platform with two people, as a test of what goes on beside its conversation sees it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from channels.shared.texts import REPEAT_MARK
from tests.fakes.model import FakeModel, Request
from tests.fakes.model_script import text_of, without_directives
from tests.fakes.server import until
from tests.support.all_platforms import AllPlatforms
from tests.support.service_process import ask

# A test of the journey runs on two platforms, one with edits and buttons and one that lacks some of them, each test on
# others; the contract suite proves the rest of each channel.
PLATFORMS = ("slack", "telegram", "discord", "feishu", "dingtalk")
TOPIC = 7


@dataclass(frozen=True, slots=True)
class ThreadTalk:
    """The people of a thread, and the service that answers them there."""

    service: AllPlatforms
    name: str

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, name: str, **settings: Any) -> AsyncIterator[ThreadTalk]:
        """Start the service with one platform."""
        quick = {"limits": {"attempts": 50}, "schedules": {"least_minutes": 0}}
        async with AllPlatforms.open(folder, name, **{**quick, **settings}) as service:
            yield cls(service, name)

    @property
    def model(self) -> FakeModel:
        return self.service.model

    @property
    def other(self) -> str:
        """Who else is in the thread, besides Jane."""
        return self.service.rigs[self.name].other

    def say(self, text: str, *, by: str = "") -> None:
        """Write to the bot. Where it reads a thread without a mention, there is none."""
        rig = self.service.rigs[self.name]
        rig.mutter(text, TOPIC, mention="follow_up" not in rig.can or not self.visible(), by=by)

    def press(self, label: str, *, by: str = "") -> None:
        """Press the latest button with this label."""
        self.service.rigs[self.name].press(label, TOPIC, by=by)

    def offers(self) -> list[str]:
        """Return the labels of all buttons that can be pressed."""
        return self.service.rigs[self.name].offers(TOPIC)

    def visible(self) -> list[str]:
        """Return what the bot has written and still shows."""
        return [without_directives(text) for text in self.service.rigs[self.name].visible(TOPIC)]

    def count(self, text: str) -> int:
        """Return how many of its messages contain the text."""
        if self.name == "console":  # it prints one text, with a marked repeat of what a killed console did not confirm
            shown = "\n".join(self.visible())
            repeats = re.findall(rf"{REPEAT_MARK}\s+{re.escape(text)}", shown)
            return shown.count(text) - len(repeats)
        return sum(text in each for each in self.visible())

    async def shows(self, text: str, times: int = 1, seconds: float = 60) -> str:
        """Return the latest message with the text, as soon as that many have it."""
        try:
            await until(lambda: self.count(text) >= times, seconds)
        except TimeoutError:
            raise AssertionError(f"no {text!r} on {self.name}: {self.visible()}") from None
        return [each for each in self.visible() if text in each][-1]

    def last_request(self, words: str) -> Request:
        """Return the last model call of a turn that has these words."""
        calls = [each for each in self.model.requests() if each.tools]
        return [each for each in calls if any(words in text_of(message) for message in each.messages)][-1]

    async def say_and_read(self, words: str) -> None:
        """Say words, and wait for the answer, which is not in the words, since a console echoes them."""
        self.say(f"{words} {ask(text='Answered.').replace('Answered', chr(92) + 'u0041nswered')}")
        await self.shows("Answered.")

    def last_words(self, words: str) -> str:
        """Return what the last model call that answers these words has of the people, in order."""
        return "\n".join(text_of(each) for each in self.last_request(words).messages if each["role"] == "user")


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    """Return a step of the scripted model with these tool calls."""
    return {"calls": [*made]}


def tool(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def delegate(title: str, prompt: str, *, background: bool = True, text: str = "delegated") -> str:
    """Return a message upon which the model lets a sub-agent work, in the background unless stated otherwise."""
    args = {"description": title, "prompt": prompt, "kind": "general-purpose", "background": background}
    return ask(steps=[calls(tool("task", **args))], text=text)


def question(text: str, *options: str) -> dict[str, Any]:
    """Return a step in which the model asks."""
    return calls(tool("ask_clarification", question=text, options=[*options]))
