"""Every rule by every path: whatever way a request takes, the same rule decides, and the audit has it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.admin.service_client import call_service
from tests.e2e.conftest import Start
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.model_script import text_of
from tests.fakes.server import Json, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.rule_paths import (
    FIRST_PERSON,
    NOTE,
    PATHS,
    WORKSPACE,
    Attempt,
    goal_is_met,
    make_attempts,
    settings_for_paths,
    took_effect,
)
from tests.support.service_process import Service, ask

OPERATOR = {"telegram": {"access": {"open": True, "operators": [str(JANE)]}}}
MEMBER = ["talk", "network", "approve", "schedule"]
OWN_REQUEST = ("background agent", "end of a command")  # what such a request starts is tested, not the request
NO_MODEL = "repeated command"

pytestmark = pytest.mark.usefixtures("bubblewrap")


async def prepare(attempts: dict[str, Attempt], *but: str) -> None:
    """Do what the paths need before the rule is tested."""
    setups = [setup(attempts[path]) for path, each in PATHS.items() if (setup := each.prepare) and path not in but]
    await asyncio.gather(*setups)
    for attempt in attempts.values():
        await attempt.service.quiet()
        break


async def reload(service: Service, folder: Path, **rules: Any) -> None:
    """Put rules into force. What was prepared before has its rights as they are now."""
    service.configure(settings_for_paths(folder, **rules))
    outcome = await call_service(service.data, "reload", {})
    assert not outcome["faults"], outcome


async def act(attempts: dict[str, Attempt], *but: str) -> None:
    for path, attempt in attempts.items():
        if path not in but:
            await PATHS[path].act(attempt)


async def each_path(attempts: dict[str, Attempt], see: Callable[[Attempt], Awaitable[Any]]) -> None:
    await asyncio.gather(*(see(attempt) for attempt in attempts.values()))
    for attempt in attempts.values():
        await attempt.service.quiet()
        break


def tool_rows(attempt: Attempt, kind: str = "tool.call") -> list[Json]:
    """Return what the audit has of the calls of the tool that the path is about, without those of its setup."""
    rows = [row for row in attempt.audit(kind) if row["what"]["tool"] == attempt.tool]
    return rows[1:] if attempt.path == "repeated command" else rows


DENIED = ["write_file(*/p-*)", NOTE, "bash(*p-2*)"]
TRAINEE = {"name": "trainee", "rights": MEMBER, "deny": DENIED}


async def is_answered(attempt: Attempt) -> None:
    """Wait for the answer, or for the refusal of a command, which no model learns."""
    await (attempt.wait("I may not repeat this command") if attempt.path == NO_MODEL else attempt.wait_done())


@pytest.mark.parametrize(
    "rules",
    [{"team": {"roles": [TRAINEE], "default_role": "trainee"}}, {"permissions": {"deny": DENIED}}],
    ids=["role", "permissions"],
)
async def test_a_rule_that_denies_the_tool(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start, rules: dict[str, Any]
) -> None:
    service = await start(**settings_for_paths(tmp_path))
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare(attempts)
    await reload(service, tmp_path, **rules)
    await act(attempts)
    await each_path(attempts, is_answered)
    for path, attempt in attempts.items():
        assert not attempt.has_effect(), path
        if path != "MCP tool":  # which the model did not get at all
            assert [(row["result"], row["what"]["by"]) for row in tool_rows(attempt)] == [("denied", "rule")], path


async def test_the_tools_of_a_named_agent(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Whatever it starts has no tool that it lacks. What the default agent asked or began before is not its work."""
    reader = {"name": "reader", "tools": ["read_file", "task", "ask_clarification"]}
    service = await start(**settings_for_paths(tmp_path, agents=[reader]))
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare(attempts)
    for attempt in attempts.values():
        attempt.send("/agents reader me")
    chosen = "SELECT count(*) FROM agent_defaults"
    await until(lambda: service.rows(chosen) == [(len(attempts),)], what="the choices")
    await act(attempts)

    async def see(attempt: Attempt) -> None:
        await (attempt.wait("begun") if attempt.path == "end of a command" else attempt.wait_done())

    others = ("button", "repeated agent", NO_MODEL)
    await each_path({path: each for path, each in attempts.items() if path != NO_MODEL}, see)
    await took_effect(attempts[NO_MODEL])
    await service.quiet()
    for path, attempt in attempts.items():
        assert attempt.has_effect() == (path in others), path


async def test_permissions_that_ask_and_a_person_who_denies(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**settings_for_paths(tmp_path))
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare(attempts)
    await reload(service, tmp_path, permissions={"ask": ["write_file", NOTE, "bash(*p-2*)"]})
    await act(attempts)

    async def deny(attempt: Attempt) -> None:
        if attempt.path != NO_MODEL:
            attempt.press(await attempt.wait("May I run"), "Deny")
        await is_answered(attempt)

    await each_path(attempts, deny)
    await service.quiet()
    for path, attempt in attempts.items():
        assert not attempt.has_effect(), path
        by, answers = ("rule", []) if path == NO_MODEL else ("person", ["deny"])
        assert [(row["result"], row["what"]["by"]) for row in tool_rows(attempt)] == [("denied", by)], path
        assert [row["result"] for row in attempt.audit("approval.answered")] == answers, path


async def test_a_call_that_others_approve(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    entry = {"calls": ["write_file", NOTE, "bash(*p-2*)"], "roles": ["operator"]}
    service = await start(**settings_for_paths(tmp_path, channels=OPERATOR))
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare(attempts)
    await reload(service, tmp_path, channels=OPERATOR, team={"approvals": [entry]})
    await act(attempts)

    async def approve(attempt: Attempt) -> None:
        if attempt.path == NO_MODEL:
            await is_answered(attempt)
            return
        shown = await attempt.wait("May I run")
        refused = attempt.press(shown, "Approve")
        await until(lambda: refused in telegram.answers, what="the refusal")
        assert "Only the person I asked" in str(telegram.answers[refused]), attempt.path
        assert not attempt.has_effect(), attempt.path
        attempt.press(shown, "Approve", user=JANE)
        await until(attempt.has_effect, what=f"the effect of {attempt.path}")
        await attempt.wait_done()

    await each_path(attempts, approve)
    await service.quiet()
    for path, attempt in attempts.items():
        runs = path != NO_MODEL
        assert attempt.has_effect() == runs, path
        assert [row["result"] for row in tool_rows(attempt)] == ["approved" if runs else "denied"], path
        assert attempt.audit("approval.answered") == [], f"{path}: an operator has answered"


async def test_a_person_who_may_not_have_work_done_any_more(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """All is accepted while the person may. Four turns run, which fill all places, and the others wait for one."""
    limits = {"live_turns": 4}
    more = {"channels": OPERATOR, "limits": limits}
    service = await start(**settings_for_paths(tmp_path, **more))
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare(attempts)
    running = ("sub-agent", "MCP tool", *OWN_REQUEST)
    is_held = threading.Event()
    is_held.set()
    model.script = hold_back(is_held, *(attempts[path] for path in running))
    for path in running:
        await PATHS[path].act(attempts[path])
        await until(lambda: any(is_at_the_call(attempts[path], each.messages) for each in model.requests()), what=path)  # noqa: B023 — awaited here
    before = len(model.requests())
    await act(attempts, *running, NO_MODEL)
    accepted = "SELECT count(*) FROM conversations WHERE pending>0 AND owner IS NULL"
    waiting = len(attempts) - len(running) - 1
    await until(lambda: service.rows(accepted) == [(waiting,)], what="what waits for a place")
    for attempt in attempts.values():
        telegram.send(f"/access grant viewer {attempt.person}")
    roles = "SELECT count(*) FROM person_roles"
    await until(lambda: service.rows(roles) == [(len(attempts),)], what="the roles")
    await PATHS[NO_MODEL].act(attempts[NO_MODEL])  # it would not wait
    is_held.clear()

    async def is_refused(attempt: Attempt) -> None:
        if attempt.path in running:
            await attempt.wait_done()

        def denied() -> bool:
            return bool(attempt.audit("access.denied")) or "denied" in [row["result"] for row in tool_rows(attempt)]

        await until(denied, what=f"the refusal of {attempt.path}")  # an answer is shown before the audit has its turn

    await each_path(attempts, is_refused)
    after = [text for request in model.requests()[before:] if (text := str(request.messages))]
    for path, attempt in attempts.items():
        assert not attempt.has_effect(), path
        if path in running:
            assert [(row["result"], row["what"]["by"]) for row in tool_rows(attempt)] == [("denied", "rule")], path
        else:
            assert not any(attempt.name in text for text in after), f"{path}: the model was called"
            texts = str([shown.text for shown in telegram.visible(attempt.chat)])
            refusals = ("I don't work for you", "Your answer doesn't count", "does not allow work here")
            assert any(refusal in texts for refusal in refusals), path


def hold_back(is_held: threading.Event, *held: Attempt) -> Callable[[Json], Answer | None]:
    """Return a script in which the call that these attempts are about comes when it is no longer held."""

    def script(body: Json) -> Answer | None:
        for attempt in held:
            if is_at_the_call(attempt, body["messages"]):
                args = {"path": f"{WORKSPACE}/{attempt.name}", "content": "made"}
                call = ToolCall(attempt.tool, json.dumps({"text": attempt.name} if attempt.tool == NOTE else args))
                return Answer("", calls=(call,), held=is_held.is_set)
        return goal_is_met(body)

    return script


def is_at_the_call(attempt: Attempt, messages: list[Json]) -> bool:
    """Return whether a model is asked for the call that this path is about: by a turn, or by what a turn started."""
    first, last = text_of(messages[0]), text_of(messages[-1])
    by_whom = {
        "MCP tool": True,
        "sub-agent": first.startswith("You are a sub-agent"),
        "background agent": "[This is a background task" in last,
        "end of a command": "[Background task" in last,
    }
    return messages[-1]["role"] == "user" and attempt.name in last and by_whom[attempt.path]


async def test_a_used_up_budget(tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """A request of the setup uses up the budget of the person, and that of sub-agents."""

    def tokens(path: str) -> int:  # a model call takes about 4,300
        return 6_000 if path in OWN_REQUEST else 2_000

    budgets = [
        {"scope": "person", "period": "day", "tokens": 1_000_000},
        {"scope": "agent", "which": "general-purpose", "period": "day", "tokens": 1},
    ]
    budgets += [
        {"scope": "person", "which": str(FIRST_PERSON + number), "period": "day", "tokens": tokens(path)}
        for number, path in enumerate(PATHS)
        if path != "sub-agent"
    ]
    service = await start(**settings_for_paths(tmp_path))
    attempts = make_attempts(telegram, model, service, tmp_path)
    args = {"description": "work", "prompt": "hello", "kind": "general-purpose", "after": []}
    telegram.send(ask(steps=[{"calls": [{"name": "task", "args": args}]}], text="used up"))
    await prepare_with_a_request(attempts)
    await telegram.wait(JANE, "used up")
    await reload(service, tmp_path, budgets=budgets)
    await act(attempts)

    async def is_refused(attempt: Attempt) -> None:
        await (attempt.wait_done() if attempt.path == "sub-agent" else attempt.wait("is used up"))

    await each_path(attempts, is_refused)
    for path, attempt in attempts.items():
        assert not attempt.has_effect(), path
        assert attempt.audit("budget.refused"), path


async def test_a_rate_of_messages(tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """What the person sends to have work done counts, `/schedule run` too. A press and background work do not."""
    service = await start(
        **settings_for_paths(tmp_path, rate_limits=[{"scope": "person", "count": 1, "seconds": "1h"}])
    )
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare_with_a_request(attempts)
    await act(attempts)
    free = ("button", *OWN_REQUEST)

    async def see(attempt: Attempt) -> None:
        await (attempt.wait_done() if attempt.path in free else attempt.wait("You may send 1 message in 1 h"))

    await each_path(attempts, see)
    for path, attempt in attempts.items():
        refused = [row["what"].get("rate") for row in attempt.audit("access.denied")]
        assert (refused, attempt.has_effect()) == (([], True) if path in free else (["person"], False)), path


async def test_a_rate_of_a_tool(tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(**settings_for_paths(tmp_path))
    attempts = make_attempts(telegram, model, service, tmp_path)
    await prepare(attempts)
    used = [row["what"]["tool"] for attempt in attempts.values() for row in attempt.audit("tool.result")]
    limits = [  # calls before the limits came into force count
        {"scope": "tool", "which": name, "count": used.count(name) + 1, "seconds": "1h"}
        for name in ("write_file", NOTE, "bash")
    ]
    await reload(service, tmp_path, rate_limits=limits)
    first = [{"name": "write_file", "args": {"path": "/mnt/user-data/workspace/a", "content": "a"}}]
    telegram.send(ask(steps=[{"calls": [*first, {"name": NOTE, "args": {"text": "a"}}]}], text="used both"))
    await telegram.wait(JANE, "used both")
    first_command = attempts["end of a command"]  # its end is tested: it needs the one call of bash
    await PATHS[first_command.path].act(first_command)
    await first_command.wait_done()
    await act(attempts, first_command.path)
    await each_path(attempts, is_answered)
    for path, attempt in attempts.items():
        assert not attempt.has_effect(), path
        shown = [each.text for each in telegram.visible(attempt.chat)]
        assert "it has reached its rate limit" in "\n".join([*attempt.requests(), *shown]), path
        assert [row["result"] for row in tool_rows(attempt, "tool.result")] == ["rate"], path


async def test_a_private_memory_in_a_group(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """What a person said in their direct chat is known there, and by no path in a group that they are in."""
    more = {"memory": {"enabled": True, "wait_seconds": 0}}
    service = await start(**settings_for_paths(tmp_path, **more))
    attempts = make_attempts(telegram, model, service, tmp_path, in_groups=True, words="What is my salary?")
    for attempt in attempts.values():
        fact = f"My salary is {attempt.person}000 euros"
        args = {"action": "save", "text": fact, "quote": fact, "kind": "preference"}
        words = ask(steps=[{"calls": [{"name": "memory", "args": args}]}], text="noted")
        telegram.send(f"{fact} {words}", chat=attempt.person)
    await until(lambda: service.rows("SELECT count(*) FROM memory") == [(len(attempts),)], what="the memories")
    await prepare(attempts)
    learnt = "SELECT 1 FROM jobs WHERE kind='memory'"
    await until(lambda: not service.rows(learnt), what="what is learnt of the direct chats")
    before = len(model.requests())
    await act(attempts)
    await each_path(attempts, took_effect)
    shared = [str(request.messages) for request in model.requests()[before:]]
    for path, attempt in attempts.items():
        mine = [text for text in shared if attempt.name in text]
        assert mine or path == NO_MODEL, path
        assert not any(f"{attempt.person}000 euros" in text for text in mine), path
        telegram.send("What is my salary?", chat=attempt.person)
    direct = len(shared) + before
    await until(lambda: len(model.requests()) >= direct + len(attempts), what="the same question in private")
    private = str([request.messages for request in model.requests()[direct:]])
    for path, attempt in attempts.items():
        assert f"{attempt.person}000 euros" in private, path
    await service.quiet()


async def prepare_with_a_request(attempts: dict[str, Attempt]) -> None:
    """Prepare, and send a request by the paths without a setup. Each person has then made one, but OWN_REQUEST."""
    plain = [attempt for path, attempt in attempts.items() if not PATHS[path].prepare and path not in OWN_REQUEST]
    for attempt in plain:
        attempt.send("hello")
    await asyncio.gather(prepare(attempts), *(attempt.wait("hello") for attempt in plain))
    await plain[0].service.quiet()
