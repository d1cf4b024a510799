"""Why a message is not answered: in the log, and for `fawn why`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from bot.config.loader import load_config
from bot.journey.ignored import (
    DECLINED,
    MAY_NOT_TALK,
    NO_ACCESS,
    NOT_ADDRESSED,
    ONLY_BOTS,
    OTHER_REASONS,
    SEEN_BEFORE,
    WAITS_FOR_PAIRING,
)
from bot.status.trouble import REASONS
from tests.e2e.conftest import Start
from tests.e2e.test_slack import InSlack
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import BOT, OPS, FakeSlack
from tests.fakes.slack import JANE as SLACK_JANE
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask

ROOT = Path(__file__).parents[2]
GROUP, EVE = -100, 78


async def test_the_log_and_fawn_why_name_the_reason(telegram: FakeTelegram, start: Start) -> None:
    service = await start(channels={"telegram": {"access": {"open": False, "allow": [str(JANE)]}}})
    telegram.send("@fawn_bot hello", chat=GROUP, user=EVE)
    await until(lambda: "reason=no_access person=78 thread=telegram/" in service.log(), what="the reason")
    number = telegram.send("nothing for the bot", chat=GROUP, user=JANE)["message_id"]
    await until(lambda: "reason=not_addressed person=42 thread=telegram/" in service.log(), what="the other reason")
    line = next(line for line in service.log().splitlines() if "reason=no_access" in line)
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    for what in (words["key"], words["thread"]):
        code, text = await service.fawn("why", what)
        assert (code, "its author has no access there" in text) == (0, True), text
    telegram.send(ask(text="the answer"))
    await telegram.wait(JANE, "the answer", seconds=60)
    await service.quiet()
    [(thread, key)] = service.rows(
        "SELECT c.thread, i.key FROM inbox i JOIN conversations c ON c.key=i.conversation LIMIT 1"
    )
    for what in (thread, key):
        code, text = await service.fawn("why", what)
        assert (code, "it was answered" in text) == (0, True), text
    code, text = await service.fawn("why", "telegram:nothing")
    assert (code, "No record of telegram:nothing" in text) == (1, True), text
    when = time.strftime("%H:%M")
    for asked, found in (
        ("jane", ["was not addressed", "was answered"]),
        (f"{JANE} at {when}", ["was not addressed", "was answered"]),
        (f"jane in {GROUP}", ["was not addressed"]),
        (f"in {GROUP}", ["no access there", "was not addressed"]),
        (f"https://t.me/c/{-GROUP}/{number}", ["was not addressed"]),
        ("jane at 2001-01-01 10:00", []),
        ("james", []),
    ):
        code, text = await service.fawn("why", *asked.split())
        for each in ("no access there", "was not addressed", "was answered"):
            assert (each in text) is (each in found), (asked, text)


async def test_each_reason_is_named_on_slack(tmp_path: Path) -> None:
    async with FakeModel() as model, FakeSlack() as slack:
        service = InSlack(tmp_path, slack, model)
        access = {"operators": [SLACK_JANE], "roles": [{"role": "viewer", "who": ["UVIEW"]}]}
        service.configure(
            {"channels": {"slack": {**service.channels()["slack"], "access": access | {"pairing": True}}}}
        )
        await service.start()
        try:
            slack.send("hello", "DUEVE", user="UEVE")
            slack.send(f"<@{BOT}> hello", OPS, user="UMAX")
            slack.send(f"<@{BOT}> hello", OPS, user="UVIEW")
            reasons = {"waits_for_pairing": "waits to be let in", "no_access": "has no access", "may_not_talk": "role"}
            for reason, words in reasons.items():
                await until(partial(lines_with, service, f"reason={reason} "), 60, reason)
                [line, *_] = lines_with(service, f"reason={reason} ")
                found = dict(word.split("=", 1) for word in line.split() if "=" in word)
                assert found["person"] == {"w": "UEVE", "n": "UMAX", "m": "UVIEW"}[reason[0]]
                for what in (found["key"], found["thread"]):
                    code, text = await service.fawn("why", what)
                    assert (code, words in text) == (0, True), (what, text)
        finally:
            await service.kill()


async def test_bots_that_talk_to_each_other_are_a_reason_of_their_own(tmp_path: Path) -> None:
    async with FakeModel() as model, FakeSlack() as slack:
        service = InSlack(tmp_path, slack, model)
        open_to_all = {"slack": {**service.channels()["slack"], "access": {"open": True, "allow": ["B0HOOK"]}}}
        service.configure({"channels": open_to_all, "limits": {"bot_turns": 1}})
        await service.start()
        try:
            first = slack.integrate("Robot", f"<@{BOT}> {ask(text='one')}", silent=False)
            await until(partial(lines_with, service, "turn.done "), 60, "the first turn")
            again = f"<@{BOT}> {ask(text='two')}"  # in the same thread
            slack.integrate("Robot", again, silent=False, thread_ts=first)
            await until(partial(lines_with, service, f"reason={ONLY_BOTS} "), 60, "the reason")
            [line, *_] = lines_with(service, f"reason={ONLY_BOTS} ")
            found = dict(word.split("=", 1) for word in line.split() if "=" in word)
            assert found["person"] == "B0HOOK"
            code, text = await service.fawn("why", found["key"])
            assert (code, "bots" in text) == (0, True), text
        finally:
            await service.kill()


def lines_with(service: Service, words: str) -> list[str]:
    return [line for line in service.log().splitlines() if words in line]


def test_the_page_names_every_reason() -> None:
    named = {NOT_ADDRESSED, NO_ACCESS, SEEN_BEFORE, DECLINED, WAITS_FOR_PAIRING, MAY_NOT_TALK, ONLY_BOTS}
    page = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("## A message is not answered")[2]
    missing = {each for each in named | {*OTHER_REASONS.values()} if f"`{each}`" not in page.partition("\n## ")[0]}
    assert missing == set()
    assert named - {SEEN_BEFORE} <= REASONS.keys()


def test_keys_that_no_model_uses_are_named(tmp_path: Path) -> None:
    keys = {"DEEPSEEK_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENAI_KEY": "k", "OPENAI_MODEL": "m"}
    (tmp_path / "config.yaml").write_text("config_version: 1\n")
    hints = "\n".join(load_config(tmp_path / "config.yaml", keys).hints)
    assert "DEEPSEEK_API_KEY is set, but no model uses it: add `models: [{name: main, preset: deepseek" in hints
    assert "ANTHROPIC_API_KEY is set" in hints
    assert "OPENAI_KEY is set: did you mean OPENAI_API_KEY?" in hints
    assert "OPENAI_MODEL is set, but OPENAI_API_KEY is not" in hints
    assert load_config(tmp_path / "config.yaml", {"OPENAI_API_KEY": "k", **keys}).hints == ()
