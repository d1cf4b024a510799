"""Rate limits of people, chats and tools."""

from __future__ import annotations

from agent.messages import Author, Message, Thread
from bot.config.schema import Config
from bot.config.spending import RateLimitConfig
from bot.current import Current
from bot.rates import ToolAndMessageRates

NOON = 1_800_000_000.0


def limiter(*limits: RateLimitConfig) -> ToolAndMessageRates:
    return ToolAndMessageRates(Current(Config(rate_limits=limits)))


def said(person: str = "jane", chat: str = "c", topic: str = "") -> Message:
    return Message(Thread("telegram", "w", chat, topic), "k", "1", Author(person, person), "hello", NOON)


def test_the_window_slides() -> None:
    rates = limiter(RateLimitConfig("person", count=2, seconds=60))
    assert rates.take_message(said(), NOON) is None
    assert rates.take_message(said(), NOON + 30) is None
    refused = rates.take_message(said(), NOON + 50)
    assert refused
    assert refused.until == NOON + 60
    assert rates.take_message(said(), NOON + 59)
    assert rates.take_message(said(), NOON + 60) is None, "refused messages do not count"
    refused = rates.take_message(said(), NOON + 61)
    assert refused
    assert refused.until == NOON + 90


def test_people_and_chats_are_counted_apart() -> None:
    rates = limiter(RateLimitConfig("person", count=2, seconds=60), RateLimitConfig("chat", count=3, seconds=60))
    assert [rates.take_message(said("jane"), NOON) is None for _ in range(3)] == [True, True, False]
    assert rates.take_message(said("bob", topic="7"), NOON) is None
    refused = rates.take_message(said("eve", topic="8"), NOON)
    assert refused
    assert refused.limit.scope == "chat"
    assert rates.take_message(said("eve", chat="other"), NOON) is None
    assert "This chat may send 3 messages in 1 min" in refused.sentence("Europe/Berlin")


def test_a_limit_for_one_replaces_that_for_all() -> None:
    rates = limiter(
        RateLimitConfig("person", "telegram:jane", 2, 60),
        RateLimitConfig("person", "", 1, 60),
        RateLimitConfig("tool", "web_search", 1, 60),
    )
    assert [rates.take_message(said("jane"), NOON) is None for _ in range(3)] == [True, True, False]
    assert [rates.take_message(said("bob"), NOON) is None for _ in range(2)] == [True, False]
    assert rates.take("web_search") is None
    assert rates.take("web_search")
    assert [rates.take("bash") for _ in range(100)] == [None] * 100
