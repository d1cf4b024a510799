"""Give all fake platforms one interface for the benchmarks: `python -m bench.platforms NAME --port N`.

People are numbers: each has a direct chat with the bot and says one thing in it.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from tests.fakes import dingtalk, dingtalk_methods, discord, feishu, feishu_rest, slack, telegram
from tests.fakes.server import LocalServer, main

LOOK = 0.04  # seconds between two checks: the resolution of a makespan
LIFTED = frozenset({"overall", "per_group", "rate_factor"})  # settings that a limited service has not
TOGETHER = 1.0  # seconds in which refused calls were under way together: a busy machine sends some of them late
DINGTALK_CALLS = dingtalk_methods.QPS


class Crowd(LocalServer):
    """The operations that a benchmark needs of a platform."""

    calls: Any  # every call of the bot so far

    def settings(self) -> dict[str, object]:
        """The channel's configuration section without overall limits; a chat keeps its own limit."""
        raise NotImplementedError

    def quick(self) -> dict[str, object]:
        """Further settings that lift the limit per chat, to measure one chat at a time."""
        raise NotImplementedError

    def limited(self) -> dict[str, object]:
        """Return the section of a service that keeps the platform's own limits, and is told nothing of them."""
        return {name: value for name, value in self.settings().items() if name not in LIFTED}

    def enforce(self, factor: float) -> None:
        """Refuse what exceeds the platform's documented limits, or so many times them; 0: refuse nothing."""
        raise NotImplementedError

    def limit_of(self, call: Any) -> tuple[str, str]:
        """Return which limit a refused call exceeded: the method, and the chat if it is counted by chat."""
        return call.method, ""

    def refusals(self) -> dict[str, int]:
        """Return the number of calls refused, and of those that came after another refusal with nothing between."""
        return count_refusals((self.limit_of(call), call.at, is_refused(call)) for call in list(self.calls))

    def forget_calls(self) -> None:
        self.calls.clear()

    def count_calls(self) -> dict[str, int]:
        """Return how often each method was called."""
        return dict(Counter(call.method for call in list(self.calls)))

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

    async def answered_each(self, texts: dict[str, str], seconds: float = 60.0) -> dict[int, float]:
        """Wait until every chat shows exactly this; return the time.monotonic() of each."""
        left, end, at = dict(texts), time.monotonic() + seconds, dict[int, float]()
        while left and time.monotonic() < end:
            await asyncio.sleep(LOOK)
            for person in [person for person, text in left.items() if list(self.read(int(person))) == [text]]:
                del left[person]
                at[int(person)] = time.monotonic()
        return at

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


def is_refused(call: Any) -> bool:
    return call.status in (403, 429)  # DingTalk's own is 403


def count_refusals(calls: Iterable[tuple[tuple[str, str], float, bool]]) -> dict[str, int]:
    """Count refusals, and those that followed another one of the same limit: not under way together, none accepted
    between."""
    total = again = 0
    last: dict[tuple[str, str], float] = {}  # limit → time of a refusal after which no call was accepted
    for limit, at, refused in sorted(calls, key=lambda call: call[1]):
        if not refused:
            last.pop(limit, None)
            continue
        total += 1
        if limit not in last:
            last[limit] = at
        elif at > last[limit] + TOGETHER:
            again += 1
            last[limit] = at
    return {"total": total, "again": again}


class Telegram(telegram.FakeTelegram, Crowd):
    def settings(self) -> dict[str, object]:
        return {"token": telegram.TOKEN, "base_url": self.base_url, "overall": 1e6, "per_group": 1e6}

    def quick(self) -> dict[str, object]:
        return {"per_chat": 1e6, "burst": 1000}

    def enforce(self, factor: float) -> None:
        self.enforce_rates(factor > 0)
        if self.rates:
            self.rates.scale(factor)

    def limit_of(self, call: Any) -> tuple[str, str]:
        return "", str(call.chat)

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

    def enforce(self, factor: float) -> None:
        self.limits, self.rates = factor > 0, slack.Rates()
        self.rates.factor = factor

    def limit_of(self, call: Any) -> tuple[str, str]:
        return call.method, call.channel if call.method == "chat.postMessage" else ""

    def connected(self) -> bool:
        return bool(self.sockets)

    def write(self, person: int, text: str) -> None:
        self.send(text, f"DU{1000 + person}", user=f"U{1000 + person}")

    def read(self, person: int) -> Sequence[str]:
        return self.texts(f"DU{1000 + person}")


class Discord(discord.FakeDiscord, Crowd):
    asked: dict[int, str] | None = None  # who mentions the bot in a channel → the message that begins the thread

    def settings(self) -> dict[str, object]:
        return {
            "token": discord.TOKEN,
            "base_url": self.api_url,
            "gateway_url": self.gateway_url,
        }

    def quick(self) -> dict[str, object]:
        return {"per_channel": 1e6, "burst": 1000}

    def enforce(self, factor: float) -> None:
        whole = discord.Rates()
        limit, overall = int(whole.limit * factor), int(whole.overall * factor)
        self.rates = discord.Rates(limit, whole.window, overall) if factor else None

    def limit_of(self, call: Any) -> tuple[str, str]:
        return call.method, call.channel

    def connected(self) -> bool:
        return bool(self.sessions)

    def use_threads(self, on: bool) -> None:
        """Have people mention the bot in ten channels, where each gets a thread, or write to it in private."""
        self.asked = {} if on else None
        for number in range(10):
            self.channel(f"45{number:014d}")

    def write(self, person: int, text: str) -> None:
        who = f"4{person:017d}"
        if self.asked is None:
            self.say(text, self.direct(who).id, user=who)
        else:
            self.asked[person] = self.say(text, f"45{person % 10:014d}", user=who, mention=True)["id"]

    def read(self, person: int) -> Sequence[str]:
        room = self.direct(f"4{person:017d}").id if self.asked is None else self.asked.get(person, "")
        return [shown.text for shown in self.visible(room)] if room in self.rooms else []


class Feishu(feishu.FakeFeishu, Crowd):
    def settings(self) -> dict[str, object]:
        return {"app_id": feishu.APP, "app_secret": feishu.SECRET, "domain": self.base_url, "overall": 1e6}

    def quick(self) -> dict[str, object]:
        return {"per_reply": 1e6}

    def enforce(self, factor: float) -> None:
        self.enforce_cards = factor > 0
        self.rates = feishu_rest.Rates(factor) if factor else None

    def limit_of(self, call: Any) -> tuple[str, str]:
        return call.method, call.place if call.method.startswith("card") else ""

    def connected(self) -> bool:
        return bool(self.sockets)

    def write(self, person: int, text: str) -> None:
        self.chats[f"oc_{person}"] = "p2p"
        self.send(text, chat=f"oc_{person}", sender=f"ou_{person}")

    def read(self, person: int) -> Sequence[str]:
        return self.visible(f"oc_{person}")


class DingTalk(dingtalk.FakeDingTalk, Crowd):
    def settings(self) -> dict[str, object]:
        return {
            "client_id": dingtalk.CLIENT,
            "client_secret": dingtalk.SECRET,
            "card_template_id": dingtalk.TEMPLATE,
            "base_url": self.base_url,
            "upload_url": self.base_url,
            "overall": 1e6,
        }

    def quick(self) -> dict[str, object]:
        return {"per_reply": 1e6}

    def enforce(self, factor: float) -> None:
        self.enforce_rates, self.calls_a_second = factor > 0, DINGTALK_CALLS * factor

    def connected(self) -> bool:
        return bool(self.sockets)

    def write(self, person: int, text: str) -> None:
        self.names[f"u{person}"] = f"u{person}"  # a member of the organization
        self.message("text", {"content": text}, sender=f"u{person}")

    def read(self, person: int) -> Sequence[str]:
        return self.visible(f"@u{person}")


PLATFORMS: dict[str, type[Crowd]] = {
    "telegram": Telegram,
    "slack": Slack,
    "discord": Discord,
    "feishu": Feishu,
    "dingtalk": DingTalk,
}

if __name__ == "__main__":
    name = sys.argv.pop(1)
    main(PLATFORMS[name]())
