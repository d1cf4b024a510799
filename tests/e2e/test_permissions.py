"""Permissions: approvals, grants, and rules that hide or deny, in the whole service on Telegram and Slack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_slack import DIRECT, InSlack
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import BOT, FakeSlack
from tests.fakes.slack import JANE as SLACK_JANE
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask, said
from tests.support.settled import outcome
from tests.support.thread_talk import TOPIC, ThreadTalk, calls, tool

ASK: Mapping[str, Any] = {"ask": ["write_file"]}
EVE, GROUP = 78, -1001
QUESTION, IN_SLACK = "May I run write_file?", "May I run `write_file`?"
ONCE, HERE = ["Approve", "Deny"], ["Approve", "Deny", "Allow in this conversation"]


def write(name: str) -> dict[str, Any]:
    return {"name": "write_file", "args": {"path": f"/mnt/user-data/workspace/{name}", "content": f"for {name}"}}


def asking(*names: str, **more: Any) -> str:
    """Return a request in which the model writes these files at once."""
    return ask(steps=[{"calls": [write(name) for name in names]}], **more)


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


def written(service: Service) -> list[str]:
    return sorted(path.name for path in service.data.glob("threads/*/workspace/*"))


def labels(shown: Shown) -> list[str]:
    return [label for label, _ in shown.buttons]


async def asked(telegram: FakeTelegram, service: Service, text: str, count: int = 1) -> list[Shown]:
    """Send a request and return the messages with its open approvals."""
    telegram.send(text)
    await until(
        lambda: len([each for each in telegram.visible(JANE) if labels(each)[:2] == ONCE]) == count,
        what="the approvals",
    )
    await service.quiet()
    return [each for each in telegram.visible(JANE) if each.buttons]


async def toast(telegram: FakeTelegram, click: str) -> str:
    """Return what the person sees who pressed a button."""
    await until(lambda: click in telegram.answers, what="the answer to a press")
    return str(telegram.answers[click])


def press(telegram: FakeTelegram, shown: Shown, label: str, **more: Any) -> str:
    return telegram.click(next(data for name, data in shown.buttons if name == label), shown.id, **more)


async def test_a_person_who_may_not_answer_is_not_told_that_it_is_their_answer(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK)
    telegram.send(f"@fawn_bot {asking('a')}", chat=GROUP)
    shown = await telegram.wait(GROUP, QUESTION)
    await service.quiet()
    for command in ("/status", "/plan more", "/chart more"):
        telegram.send(command, chat=GROUP, user=EVE)
    words = "I'm waiting for somebody else's answer to “May I run write_file?”."
    await until(lambda: str(said(telegram, GROUP)).count(words) == 3, what="the answers")
    telegram.send("/status", chat=GROUP)
    await telegram.wait(GROUP, "I'm waiting for your answer to “May I run write_file?”.")
    press(telegram, shown, "Deny", chat=GROUP)


# Case 91 of docs/cases.md
@pytest.mark.usefixtures("bubblewrap")
async def test_an_approval_shows_the_call_and_only_its_requester_decides_once(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK)
    [question] = await asked(telegram, service, asking("a", text="first done"))
    assert QUESTION in question.text
    assert '"path": "/mnt/user-data/workspace/a"' in question.text
    assert labels(question) == HERE, "only operators may allow a call everywhere"
    assert "Only the person I asked" in await toast(telegram, press(telegram, question, "Approve", user=EVE))
    await service.restart()  # kill -9
    assert (len(model.requests()), written(service)) == (1, [])
    first, second = press(telegram, question, "Approve"), press(telegram, question, "Deny")
    pressed = telegram.queries[first]
    await telegram.wait(JANE, "first done")
    await service.quiet()
    assert "✓ Approve" in await toast(telegram, first)
    assert "answered or closed" in await toast(telegram, second)
    assert written(service) == ["a"]
    calls = len(model.requests())
    telegram.queries["replayed"] = {**pressed, "id": "replayed"}
    telegram.push("callback_query", telegram.queries["replayed"])
    assert "answered or closed" in await toast(telegram, "replayed")
    await service.quiet()
    assert len(model.requests()) == calls, "a replayed press begins nothing"
    [again] = await asked(telegram, service, asking("a", id="again"))
    assert labels(again) == HERE, "an approval is for one call"
    assert service.rows("SELECT count(*) FROM permission_grants") == [(0,)]


async def test_a_denied_call_never_runs_even_if_the_rules_have_changed(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK)
    [question] = await asked(telegram, service, asking("a", text="then without it"))
    await service.kill()
    service.configure({"permissions": {"allow": ["write_file"]}})
    await service.start()
    press(telegram, question, "Deny")
    await telegram.wait(JANE, "then without it")
    await service.quiet()
    assert "The person did not approve this call: Deny." in results(model)[0]
    assert written(service) == []


async def test_an_approved_call_does_not_run_if_a_rule_denies_it_meanwhile(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK)
    [question] = await asked(telegram, service, asking("a", text="then without it"))
    await service.kill()
    service.configure({"permissions": {"deny": ["write_file(*/a)"]}})
    await service.start()
    press(telegram, question, "Approve")
    await telegram.wait(JANE, "then without it")
    await service.quiet()
    assert "A rule of this installation (write_file(*/a)) forbids this call." in results(model)[0]
    assert written(service) == []


async def test_an_approval_expires_as_denied(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(permissions=ASK, limits={"approval_hours": 0.0005})
    [question] = await asked(telegram, service, asking("a", text="then without it"))
    await telegram.wait(JANE, "Nobody answered in time")
    await telegram.wait(JANE, "then without it")
    await service.quiet()
    assert "did not approve this call: no answer in time" in results(model)[0]
    assert "Nobody answered in time" in await outcome(telegram, question)
    assert written(service) == []
    code, text = await service.fawn("audit", "export", "--kind", "approval.expired")
    assert (code, len(text.splitlines())) == (0, 1), text


@pytest.mark.usefixtures("bubblewrap")
async def test_several_approvals_are_decided_one_by_one(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(permissions=ASK)
    questions = await asked(telegram, service, asking("a", "b", "c", text="all decided"), 3)
    one, two, three = (
        next(each for each in questions if f'workspace/{name}"' in each.text) for name in "abc"
    )  # any order
    press(telegram, two, "Deny")
    press(telegram, three, "Approve")
    await until(lambda: written(service) == ["c"], what="the approved call")
    await service.quiet()
    assert len(model.requests()) == 1, "the first one is still open"
    await service.restart()
    last = next(each for each in telegram.visible(JANE)[::-1] if each.buttons)
    assert last.id == one.id or '"path": "/mnt/user-data/workspace/a"' in last.text
    press(telegram, last, "Approve")
    await telegram.wait(JANE, "all decided")
    await service.quiet()
    assert ["did not approve" in result for result in results(model)] == [False, True, False]
    assert written(service) == ["a", "c"]


# Case 92 of docs/cases.md
@pytest.mark.usefixtures("bubblewrap")
async def test_what_is_allowed_in_a_conversation_holds_there_until_it_is_revoked(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK)
    [question] = await asked(telegram, service, asking("a", text="first done"))
    assert "covers every later call of write_file with the same path" in question.text
    press(telegram, question, "Allow in this conversation")
    await telegram.wait(JANE, "first done")
    await service.restart()
    telegram.send(asking("a", text="second done", id="2"))
    await telegram.wait(JANE, "second done")
    [other] = await asked(telegram, service, asking("b", text="third done", id="3"))
    press(telegram, other, "Deny")
    await telegram.wait(JANE, "third done")
    telegram.send("/permissions")
    shown = await telegram.wait(JANE, "in this conversation, by Jane")
    assert "I ask first: write_file" in shown.text
    assert "1: write_file(/mnt/user-data/workspace/a)" in shown.text
    telegram.send("/permissions revoke 7")
    await telegram.wait(JANE, "There is no such permission here.")
    telegram.send("/permissions revoke 1")
    await telegram.wait(JANE, "Revoked. From now on I ask before write_file(/mnt/user-data/workspace/a).")
    [again] = await asked(telegram, service, asking("a", text="fourth done", id="4"))
    press(telegram, again, "Allow in this conversation")
    await telegram.wait(JANE, "fourth done")
    telegram.send("/new")
    await telegram.wait(JANE, "A fresh start")
    await asked(telegram, service, asking("a", id="5"))


async def test_an_operator_allows_a_call_everywhere_as_long_as_they_are_one(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    operator = {"telegram": {"access": {"open": True, "operators": [str(JANE)]}}}
    service = await start(permissions=ASK, channels=operator)
    [question] = await asked(telegram, service, asking("a", text="first done"))
    assert labels(question) == [*HERE, "Always allow"]
    press(telegram, question, "Always allow")
    await telegram.wait(JANE, "first done")
    telegram.send(asking("a", text="done for Eve", id="2"), chat=EVE)
    await telegram.wait(EVE, "done for Eve")
    assert QUESTION not in str(said(telegram, EVE))
    telegram.send("/permissions revoke 1", chat=EVE)
    await telegram.wait(EVE, "Your role here, member, doesn't let you use /permissions revoke.")
    await service.stop()
    service.configure({"permissions": ASK})
    await service.start()
    telegram.send(asking("a", id="3"), chat=EVE)
    await telegram.wait(EVE, QUESTION)
    await service.stop()
    service.configure({"permissions": ASK, "channels": operator})
    await service.start()
    telegram.send("/permissions revoke 1")
    await telegram.wait(JANE, "Revoked.")
    await service.quiet()
    assert service.rows("SELECT count(*) FROM permission_grants") == [(0,)]


async def test_the_model_does_not_get_a_denied_tool_and_cannot_run_it(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions={"deny": ["write_file", "read_file(/etc/*)"]})
    telegram.send(asking("a", text="then without it"))
    await telegram.wait(JANE, "then without it")
    await service.quiet()
    tools = {tool["function"]["name"] for request in model.requests() for tool in request.tools}
    assert "read_file" in tools
    assert "write_file" not in tools
    assert "A rule of this installation (write_file) forbids this call." in results(model)[0]
    assert written(service) == []


@pytest.fixture
async def in_slack(tmp_path: Path) -> AsyncIterator[InSlack]:
    async with FakeModel() as model, FakeSlack() as slack:
        service = InSlack(tmp_path, slack, model)
        settings = {**service.channels()["slack"], "access": {"open": True, "operators": [SLACK_JANE]}}
        service.configure({"channels": {"slack": settings}, "permissions": ASK})
        async with service:
            yield service


async def test_approvals_and_grants_on_slack(in_slack: InSlack) -> None:
    slack, model = in_slack.slack, in_slack.model
    root = slack.send(f"<@{BOT}> {asking('a', text='first done')}")
    question = await slack.wait(IN_SLACK, thread=root)
    await in_slack.quiet()
    question = await slack.wait(IN_SLACK, thread=root)
    assert '"path": "/mnt/user-data/workspace/a"' in question.text
    assert [label for label, *_ in question.buttons] == [*HERE, "Always allow"]
    slack.click("Approve", question.ts, user="U2")
    await slack.wait("Only the person I asked can answer.", thread=root)
    await in_slack.restart()
    assert written(in_slack) == []
    slack.click("Allow in this conversation", question.ts)
    slack.click("Deny", question.ts)
    await slack.wait("first done", thread=root)
    await slack.wait("This is already answered or closed.", thread=root)
    slack.send(asking("a", text="second done", id="2"), thread=root)
    await slack.wait("second done", thread=root)
    assert written(in_slack) == ["a"]
    slack.send(asking("b", text="third done", id="3"), thread=root)
    await slack.wait("workspace/b", thread=root)
    await in_slack.quiet()
    slack.click("Deny", (await slack.wait("workspace/b", thread=root)).ts)
    await slack.wait("third done", thread=root)
    await in_slack.quiet()
    assert "did not approve" in results(model)[-1]
    assert written(in_slack) == ["a"]
    other = slack.send(asking("a", text="elsewhere done", id="4"), DIRECT)
    await slack.wait(IN_SLACK, DIRECT, other)
    await in_slack.quiet()
    slack.click("Always allow", (await slack.wait(IN_SLACK, DIRECT, other)).ts, DIRECT)
    await slack.wait("elsewhere done", DIRECT, other)
    third = slack.send(asking("a", text="everywhere done", id="5"), DIRECT)
    await slack.wait("everywhere done", DIRECT, third)
    await in_slack.quiet()
    assert in_slack.rows("SELECT conversation='', tool, name FROM permission_grants ORDER BY id") == [
        (0, "write_file", "Jane"),
        (1, "write_file", "Jane"),
    ]


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("name", ["telegram", "slack"])
async def test_a_call_is_a_step_once_it_is_allowed_and_says_how_it_ended(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}, permissions={"ask": ["bash(make *)"]}) as talk:
        rig = talk.service.rigs[name]

        def steps() -> list[str]:
            return [line.partition(": bash")[0] for line in rig.folded(TOPIC) if "make" in line or "step" in line]

        for decision, state in (("Approve", "1 failed"), ("Deny", "1 denied")):
            talk.say(ask(steps=[calls(tool("bash", command="make deploy"))], text=f"after {decision}", id=decision))
            await until(lambda: "Deny" in talk.offers(), what="the question")
            await talk.service.quiet()
            before = steps()
            assert len(before) == (0 if decision == "Approve" else 2), "a call that waits has not begun"
            talk.press(decision)
            await talk.shows(f"after {decision}")
            await talk.service.quiet()
            [summary, step] = steps()[len(before) :]
            assert summary.startswith(f"✅ 1 step, {state} · ")
            title = "Running make deploy" if decision == "Approve" else "Denied: Running make deploy"
            assert step[1:].strip(" :") == title
        talk.say("!steps")
        assert "⊘ Denied: Running make deploy" in await talk.shows("shows what a step returned")
        failing = [tool("bash", command="echo built; exit 3"), tool("bash", command="make it")]
        talk.say(ask(steps=[calls(*failing)], text="tried"))
        await until(lambda: "Approve" in talk.offers(), what="the question")
        await talk.service.quiet()
        talk.press("Approve")
        await talk.shows("tried")
        await talk.service.quiet()
        talk.say("!steps 1", by=talk.other)
        await talk.shows("Only the person who asked, or an operator, can see these steps.")
        talk.say("!steps 1")
        shown = await talk.shows("[exit code 3]")
        assert "✗ Running exit" in shown
        assert "echo built; exit 3" in shown
        talk.say("!steps 2")
        assert "make it" in await talk.shows("[exit code 2]")
        talk.say("!steps 3")
        await talk.shows("There is no step 3.")
