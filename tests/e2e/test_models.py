"""Several models in the whole service: choosing one, servers that fail or ask for a pause, and calls at once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_subagents import task
from tests.fakes.model import Answer, FakeModel
from tests.fakes.server import Json, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask
from tests.support.thread_talk import ThreadTalk
from tests.unit.agent.test_pictures import picture, shown

BOB, OTHER, BOSS = 77, 78, 99


@pytest.fixture
async def other() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


def models(model: FakeModel, other: FakeModel, **more: Any) -> list[Json]:
    """Return two models on two servers; `more` are settings of the first one."""
    entry = {"api_key": "$OPENAI_API_KEY", "retries": 1}
    return [
        {"name": "main", "model": "big", "base_url": f"{model.base_url}/v1", **entry, **more},
        {"name": "other", "model": "small", "base_url": f"{other.base_url}/v1", **entry},
    ]


def operated(telegram: FakeTelegram) -> Json:
    token = {"token": "$TELEGRAM_BOT_TOKEN", "base_url": telegram.base_url}
    return {"telegram": {**token, "access": {"open": True, "operators": [str(BOSS)]}}}


async def test_a_model_and_its_effort_are_chosen_for_a_conversation_and_kept_over_a_restart(
    telegram: FakeTelegram, model: FakeModel, other: FakeModel, start: Start
) -> None:
    bodies: list[tuple[str, str]] = []

    def script(body: Json) -> None:
        bodies.append((body["model"], body.get("reasoning_effort", "")))

    model.script = other.script = script
    service = await start(models=models(model, other))
    for text, answer in {
        "/model": "main (main) answers here, as configured.",
        "/models": "Efforts of main, other: none, minimal, low, medium, high, xhigh",
        "/model othr": "I have no model othr. Did you mean other?",
        "/model other hihg": "other has no effort hihg. Did you mean high?",
        "/model other very": "It has none, minimal, low",
        "/model other High": "From your next message on, other (other) answers here with the effort high.",
    }.items():
        telegram.send(text)
        await telegram.wait(JANE, answer)
    telegram.send("first")
    await telegram.wait(JANE, "\nfirst")
    await service.restart()
    telegram.send("second")
    await telegram.wait(JANE, "\nsecond")
    await service.quiet()
    telegram.send("/model")
    await telegram.wait(JANE, "other (other) answers here with the effort high.")
    telegram.send("/model low")
    await telegram.wait(JANE, "other (other) answers here with the effort low.")
    telegram.send("third")
    await telegram.wait(JANE, "\nthird")
    telegram.send("elsewhere", chat=BOB)
    await telegram.wait(BOB, "\nelsewhere")
    await service.quiet()
    telegram.send("/model default")
    await telegram.wait(JANE, "That choice has ended. main (main) answers here, as configured.")
    telegram.send("fourth")
    await telegram.wait(JANE, "\nfourth")
    assert bodies == [("small", "high"), ("small", "high"), ("small", "low"), ("big", ""), ("big", "")]


async def test_a_server_that_is_down_is_skipped_shown_in_status_and_used_again(
    telegram: FakeTelegram, model: FakeModel, other: FakeModel, start: Start
) -> None:
    model.script = lambda body: Answer(status=500)
    await start(
        models=models(model, other),
        roles={"fallback": ["other"]},
        limits={"endpoint_failures": 2, "endpoint_seconds": 4},
        channels=operated(telegram),
    )
    telegram.send("one")
    await telegram.wait(JANE, "My model's server has a problem (500). other answers instead.")
    assert len(model.requests()) == 2
    telegram.send("one", chat=OTHER)
    await telegram.wait(OTHER, "My model's server has a problem (500). other answers instead.")
    assert len(model.requests()) == 3, "one conversation alone takes the model from no other"
    telegram.send("two", chat=BOB)
    await telegram.wait(BOB, "The server of main is failing. other answers instead.")
    assert len(model.requests()) == 3, "no call while it is down"
    telegram.send("/status", chat=BOSS)
    status = await telegram.wait(BOSS, "The server of main failed 3 times in a row.")
    found = re.search(r"I try it again in (\d) s", status.text)
    assert found
    assert int(found[1]) <= 4
    model.script = None
    for number in range(300):
        telegram.send(ask(text=f"answer {number}"))
        await telegram.wait(JANE, f"answer {number}")
        if len(model.requests()) > 3:
            break
    assert len(model.requests()) > 3, "one call has found out that it works"
    telegram.send("/status", chat=BOSS)
    await until(lambda: len(telegram.visible(BOSS)) >= 2)
    assert "failed" not in telegram.visible(BOSS)[-1].text


async def test_a_pause_of_one_provider_does_not_delay_the_others(
    telegram: FakeTelegram, model: FakeModel, other: FakeModel, start: Start
) -> None:
    tries: list[Json] = []

    def script(body: Json) -> Answer | None:
        tries.append(body)
        return Answer(status=429, retry_after=3) if len(tries) == 1 else None

    model.script = script
    await start(models=models(model, other), limits={"model_calls": 2})
    telegram.send("/model other", chat=BOB)
    await telegram.wait(BOB, "answers here")
    telegram.send("slow one")
    await until(lambda: len(tries) == 1)
    for chat in (1001, 1002):
        telegram.send("slow two", chat=chat)
    telegram.send("quick", chat=BOB)
    await telegram.wait(BOB, "\nquick")
    assert len(model.requests()) == 1, "the other provider answered during the pause, which all calls respect"
    for chat in (JANE, 1001, 1002):
        await telegram.wait(chat, "\nslow")
    assert min(each.at for each in model.requests()[1:]) - model.requests()[0].at >= 3


async def test_sub_agents_of_one_conversation_do_not_starve_another(
    telegram: FakeTelegram, model: FakeModel, other: FakeModel, start: Start
) -> None:
    await start(models=models(model, other, calls=1), sandbox={"provider": "none"}, subagents={"at_once": 10})
    tasks = [task(f"part {n}", seq=1, args={"path": "/mnt"}, delay_ms=300, text=f"result {n}") for n in range(8)]
    telegram.send(ask(id="lead", steps=[{"calls": tasks}], text="all done"))
    await until(lambda: len(model.requests("part 0")) == 1)
    telegram.send(ask(id="bob", text="hello Bob"), chat=BOB)
    await telegram.wait(BOB, "hello Bob")
    before = [each for each in model.requests() if each.id.startswith("part")]
    assert len(before) <= 4, "8 × 2 calls of the tasks take 5 s"
    await telegram.wait(JANE, "all done")
    spans = sorted((each.at, each.end) for each in model.requests())
    assert all(end <= following + 0.05 for (_, end), (following, _) in pairwise(spans))


async def test_a_picture_goes_to_the_model_that_sees_for_one_turn(
    telegram: FakeTelegram, model: FakeModel, other: FakeModel, start: Start
) -> None:
    entries = models(model, other, vision=False)
    entries[1]["vision"] = True
    service = await start(models=entries, roles={"vision": "other"}, sandbox={"provider": "none"})
    other.script = lambda body: Answer("a gradient")
    telegram.send_photo(picture(), caption="What is this?")
    await telegram.wait(JANE, "main can't see pictures. other answers instead.")
    await service.quiet()
    assert len(shown(other.requests()[-1].messages[-1])) == 1
    assert not model.requests()
    telegram.send("thanks")
    await telegram.wait(JANE, "\nthanks")
    assert "cannot see pictures" in str(model.requests()[-1].messages)


@pytest.mark.parametrize("name", ["slack", "telegram"])
async def test_a_person_chooses_a_model_for_all_their_conversations(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name) as talk:
        entry = {"model": "any", "base_url": f"{talk.model.base_url}/v1", "api_key": "$OPENAI_API_KEY"}
        talk.service.configure({"models": [{"name": each, **entry} for each in ("main", "other", "third")]})
        await talk.service.restart()
        rig = talk.service.rigs[name]

        async def says(text: str, answer: str, *, by: str = "") -> None:
            talk.say(text, by=by)
            await talk.shows(answer)
            await talk.service.quiet()

        await says("!model other high me", "answers you by default with the effort")
        await says("!model", "You chose it for all your conversations")
        await says(ask(text="mine"), "mine")
        await says(ask(text="theirs"), "theirs", by=talk.other)
        await says("!model third", "answers here")
        await says("!model", "It was chosen for this conversation")
        await says(ask(text="of the thread"), "of the thread")
        rig.mutter(ask(text="in private"))
        await until(lambda: any("in private" in each for each in rig.visible()), what="the answer in the direct chat")
        await talk.service.quiet()  # or the restart takes the turn up again, with another model
        talk.service.configure({"models": [{"name": each, **entry} for each in ("main", "third")]})
        await talk.service.restart()
        rig.mutter(ask(text="fallen back"))
        gone = "other is no longer configured; main answers instead"
        await until(lambda: any(gone in each for each in rig.visible()), what="the notice")
        rig.mutter("!model")
        await until(lambda: any("was chosen, which is no longer" in each for each in rig.visible()), what="why")
        await says("!model default me", "That choice has ended")
        rig.mutter(ask(text="as configured"))
        await until(lambda: any("as configured" in each for each in rig.visible()), what="the last answer")
        await talk.service.quiet()
        used = [model for (model,) in talk.service.rows("SELECT model FROM usage WHERE kind='turn' ORDER BY id")]
        assert used == ["other", "main", "third", "other", "main", "main"]
