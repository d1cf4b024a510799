"""Give all fake platforms one interface for the benchmarks: `python -m bench.platforms NAME --port N`.

People are numbers: each has a direct chat with the bot and says one thing in it.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from tests.fakes import discord, feishu, slack, telegram
from tests.fakes.server import LocalServer, main

LOOK = 0.04  # seconds between two checks: the resolution of a makespan


class Crowd(LocalServer):
    """The operations that a benchmark needs of a platform."""

    calls: Any  # every call of the bot so far

    def settings(self) -> dict[str, object]:
        """The channel's configuration section without overall limits; a chat keeps its own limit."""
        raise NotImplementedError

    def quick(self) -> dict[str, object]:
        """Further settings that lift the limit per chat, to measure one chat at a time."""
        raise NotImplementedError

    def connected(self) -> bool:
        """Whether the bot listens."""
        raise NotImplementedError

    def write(self, person: int, text: str) -> None:
        raise NotImplementedError

    def read(self, person: int) -> Sequence[str]:
        """Return the bot's messages in this chat."""
        raise NotImplementedError

    async def ask(self, texts: dict[str, str]) -> float:
        """Send {person: text} all at once and return the time.monotonic() of it."""
        began = time.monotonic()
        for person, text in texts.items():
            self.write(int(person), text)
        return began

    async def answered(self, texts: dict[str, str], seconds: float = 60.0) -> float:
        """Wait until every chat shows exactly this; return the time.monotonic() of the last one, or give up."""
        left, end, last = dict(texts), time.monotonic() + seconds, time.monotonic()
        while left and time.monotonic() < end:
            await asyncio.sleep(LOOK)
            for person in [person for person, text in left.items() if list(self.read(int(person))) == [text]]:
                del left[person]
                last = time.monotonic()
        return last

    def read_all(self, people: Iterable[int]) -> dict[int, list[str]]:
        return {person: list(self.read(person)) for person in people}

    def arrivals(self, word: str) -> dict[int, float]:
        """Return when the first call with `word`0, `word`1, … arrived (time.monotonic())."""
        found: dict[int, float] = {}
        pattern = re.compile(rf"\b{re.escape(word)}(\d+)\b".encode())
        for call in self.calls:
            carried = getattr(call, "args", None) or getattr(call, "body", None) or {}
            for number in set(pattern.findall(orjson.dumps(carried, default=str))):
                found.setdefault(int(number), call.at)
        return found


class Telegram(telegram.FakeTelegram, Crowd):
    def settings(self) -> dict[str, object]:
        return {"token": telegram.TOKEN, "base_url": self.base_url, "overall": 1e6, "per_group": 1e6}

    def quick(self) -> dict[str, object]:
        return {"per_chat": 1e6, "burst": 1000}

    def connected(self) -> bool:
        return self.poll_count() > 0

    def write(self, person: int, text: str) -> None:
        self.send(text, chat=1000 + person)

    def read(self, person: int) -> Sequence[str]:
        return self.texts(1000 + person)


class Slack(slack.FakeSlack, Crowd):
    def settings(self) -> dict[str, object]:
        tokens = {"bot_token": slack.BOT_TOKEN, "app_token": slack.APP_TOKEN}
        return {**tokens, "base_url": self.api_url, "rate_factor": 1e6}

    def quick(self) -> dict[str, object]:
        return {}  # Slack's limits are those of the workspace

    def connected(self) -> bool:
        return bool(self.sockets)

    def write(self, person: int, text: str) -> None:
        self.send(text, f"DU{1000 + person}", user=f"U{1000 + person}")

    def read(self, person: int) -> Sequence[str]:
        return self.texts(f"DU{1000 + person}")


class Discord(discord.FakeDiscord, Crowd):
    def settings(self) -> dict[str, object]:
        return {
            "token": discord.TOKEN,
            "base_url": self.api_url,
            "gateway_url": self.gateway_url,
        }

    def quick(self) -> dict[str, object]:
        return {"per_channel": 1e6, "burst": 1000}

    def connected(self) -> bool:
        return bool(self.sessions)

    def write(self, person: int, text: str) -> None:
        who = f"4{person:017d}"
        self.say(text, self.direct(who).id, user=who)

    def read(self, person: int) -> Sequence[str]:
        return [shown.text for shown in self.visible(self.direct(f"4{person:017d}").id)]


class Feishu(feishu.FakeFeishu, Crowd):
    def settings(self) -> dict[str, object]:
        return {"app_id": feishu.APP, "app_secret": feishu.SECRET, "domain": self.base_url, "overall": 1e6}

    def quick(self) -> dict[str, object]:
        return {"per_reply": 1e6}

    def connected(self) -> bool:
        return bool(self.sockets)

    def write(self, person: int, text: str) -> None:
        self.chats[f"oc_{person}"] = "p2p"
        self.send(text, chat=f"oc_{person}", sender=f"ou_{person}")

    def read(self, person: int) -> Sequence[str]:
        return self.visible(f"oc_{person}")


PLATFORMS: dict[str, type[Crowd]] = {"telegram": Telegram, "slack": Slack, "discord": Discord, "feishu": Feishu}

if __name__ == "__main__":
    name = sys.argv.pop(1)
    main(PLATFORMS[name]())
