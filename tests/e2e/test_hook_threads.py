"""Hooks where a message begins a thread: each alert has one of its own, which people and the agent share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.admin.service_client import call_service
from tests.e2e.test_hooks import MARK, TOKEN, answers, asked, post
from tests.e2e.test_probes import address_of
from tests.fakes import hook_payloads
from tests.fakes.hook_payloads import ALL
from tests.fakes.model import Answer
from tests.fakes.model_script import ToolCall, text_of
from tests.fakes.server import Json, until
from tests.support.alertmanager import alertmanager, needs_alertmanager, tell
from tests.support.all_platforms import AllPlatforms
from tests.support.hook_chat import ADDRESSES, PEOPLE, PLATFORMS, HookChat
from tests.support.service_process import ask
from tests.unit.bot.test_hook_endpoint import SIGNATURES

TOPIC = 9
on_each = pytest.mark.parametrize("name", PLATFORMS)
on_one = pytest.mark.parametrize("name", PLATFORMS[:1])  # what does not depend on how a platform shows a thread


@asynccontextmanager
async def opened(
    folder: Path, name: str, *, more: dict[str, Any] | None = None, **hook: Any
) -> AsyncIterator[HookChat]:
    """Start the service with a hook for each sender, in the chat of this platform."""
    shared = {"to": ADDRESSES[name], "as": f"@{PEOPLE[name]}", "secret": TOKEN, "gather_seconds": 0.3, **hook}
    hooks = {sender: {**shared, "signature": signature} for sender, signature in SIGNATURES.items()}
    settings: dict[str, Any] = {"http": {"listen": "127.0.0.1:0"}, "hooks": hooks, "sandbox": {"provider": "none"}}
    async with AllPlatforms.open(folder, name, **settings, **(more or {})) as service:
        yield HookChat(service, name)


async def begun(chat: HookChat, text: str, topic: int = TOPIC) -> str:
    """Wait for the post of an alert; people call the thread below it by this number. Returns the post."""
    await until(lambda: any(text in said for _post, said in chat.posts()), what=f"{text!r} in the chat")
    [(post_, said)] = [each for each in chat.posts() if text in each[1]]
    chat.enter(post_, topic)
    return said


async def said(chat: HookChat, text: str, topic: int = TOPIC) -> str:
    """Wait for a message of the bot below an alert."""
    try:
        await until(lambda: any(text in each for each in chat.below(topic)))
    except TimeoutError:
        log = chat.service.log()[-3000:]
        raise AssertionError(f"no {text!r} below {chat.posts()}: {chat.below(topic)}\n{log}") from None
    return next(each for each in chat.below(topic) if text in each)


@on_each
async def test_an_alert_begins_a_thread_in_which_its_group_continues_and_its_end_is_said(
    tmp_path: Path, name: str
) -> None:
    async with opened(tmp_path, name) as chat:
        service = chat.service
        answers(service, "The database is slow.")
        assert await post(service, "alertmanager", hook_payloads.alertmanager()) == 202
        assert "HighLatency" in await begun(chat, "🔔 Hook “alertmanager”")
        assert "🔔" not in await said(chat, "The database is slow."), "the alert itself stands above"
        await service.quiet()
        answers(service, "Two of them now.")
        assert await post(service, "alertmanager", hook_payloads.alertmanager("HighLatency", "DiskFull")) == 202
        await said(chat, "Two of them now.")
        await service.quiet()
        last = [each for each in service.model.requests() if MARK in text_of(each.messages[-1])][-1]
        assert "The database is slow." in str(last.messages), "it knows what it said"
        assert await post(service, "alertmanager", hook_payloads.alertmanager(status="resolved")) == 202
        await said(chat, "✅")
        await service.quiet()
        assert len(asked(service)) == 2
        assert len(chat.posts()) == 1, "all of it is in the thread"
        service.rigs[name].mutter(ask(text="It is over."), TOPIC, mention=True)
        await said(chat, "It is over.")
        words = str(service.model.requests()[-1].messages)
        assert words.count("The database is slow.") == 1, "a person continues in the same conversation"
        assert "✅" in words
        assert len(service.rows("SELECT DISTINCT conversation FROM runs")) == 1


@on_one
async def test_each_sender_has_its_own_thread(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, name, per_minute=10) as chat:
        answers(chat.service, "Looked at it.")
        for topic, (sender, make) in enumerate(ALL.items(), TOPIC):
            assert await post(chat.service, sender, make()) == 202
            assert await post(chat.service, sender, make()) == 200
            await begun(chat, f"🔔 Hook “{sender}”", topic)
            await said(chat, "Looked at it.", topic)
        await chat.service.quiet()
        assert len(chat.posts()) == len(asked(chat.service)) == len(ALL)


@on_one
async def test_a_storm_is_one_thread_and_one_turn_with_all_items(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, name, gather_seconds=2) as chat:
        service = chat.service
        answers(service, "A storm.")
        await post(service, "gitlab", ({}, {}), signed=False)  # the listener is there
        payloads = [hook_payloads.alertmanager(f"Alert{number}", group=f"g{number}") for number in range(50)]
        assert {*await asyncio.gather(*(post(service, "alertmanager", each) for each in payloads))} == {202}
        await begun(chat, "🔔 Hook “alertmanager”")
        await said(chat, "A storm.")
        await service.quiet()
        [request] = asked(service)
        assert all(f"Alert{number}:" in request for number in range(50))
        assert len(chat.posts()) == 1
        ended = [hook_payloads.alertmanager(f"Alert{n}", group=f"g{n}", status="resolved") for n in range(50)]
        assert {*await asyncio.gather(*(post(service, "alertmanager", each) for each in ended))} == {202}
        await said(chat, "✅")
        await service.quiet()
        assert len(chat.posts()) == 1
        assert sum("✅" in each for each in chat.below(TOPIC)) == 1, "its end is one message"


@on_each
async def test_killed_before_the_thread_and_during_the_turn_it_is_answered_once(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, name) as chat:
        service, free = chat.service, asyncio.Event()
        answers(service, "Once.", lambda: not free.is_set())
        assert await post(service, "alertmanager", hook_payloads.alertmanager()) == 202
        await begun(chat, "🔔 Hook “alertmanager”")
        await service.kill()
        await service.start()
        await until(lambda: bool(asked(service)), what="the turn")
        await service.kill()
        free.set()
        await service.start()
        await said(chat, "Once.")
        await service.quiet()
        assert sum("Once." in each for each in chat.below(TOPIC)) == 1
        assert len(chat.posts()) == len(service.rows("SELECT 1 FROM runs")) == 1


@on_one
async def test_without_a_prompt_the_thread_holds_what_comes(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, name, prompt="") as chat:
        assert await post(chat.service, "alertmanager", hook_payloads.alertmanager()) == 202
        await begun(chat, "🔔 Hook “alertmanager”")
        assert await post(chat.service, "alertmanager", hook_payloads.alertmanager(status="resolved")) == 202
        await said(chat, "✅")
        await chat.service.quiet()
        assert (len(chat.posts()), len(chat.below(TOPIC)), len(asked(chat.service))) == (1, 1, 0)


ROLE = {"name": "oncall-bot", "rights": ["talk"], "deny": ["write_file(*/secret)"], "ask": ["write_file(*/asked)"]}
TEAM = {"default_role": "operator", "roles": [ROLE]}


def write(name: str) -> ToolCall:
    return ToolCall("write_file", json.dumps({"path": f"/mnt/user-data/workspace/{name}", "content": "x"}))


@on_each
async def test_a_hook_has_the_rights_of_its_role_and_operators_approve_for_it(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, name, more={"team": TEAM}, **{"as": "oncall-bot"}) as chat:
        service = chat.service

        def script(body: Json) -> Answer | None:
            messages = body["messages"]
            if not any(MARK in text_of(each) for each in messages):
                return None
            done = [each for each in messages if each["role"] == "tool"]
            return Answer("Written what I may.") if done else Answer("", (write("secret"), write("asked")))

        service.model.script = script
        assert await post(service, "alertmanager", hook_payloads.alertmanager()) == 202
        await begun(chat, "🔔 Hook “alertmanager”")
        await said(chat, "May I run `write_file`?")
        await service.quiet()
        service.rigs[name].press("Approve", TOPIC)
        await said(chat, "Written what I may.")
        await service.quiet()
        assert [path.name for path in service.data.glob("threads/*/workspace/*")] == ["asked"]
        [request] = [each for each in service.model.requests() if each.messages[-1]["role"] == "tool"]
        refused = [text_of(each) for each in request.messages if each["role"] == "tool"]
        assert any("forbids this call" in each for each in refused), refused
        assert service.rows("SELECT DISTINCT requester FROM runs") == [("hook:alertmanager",)]
        assert not service.rigs[name].pinged(TOPIC), "it acts in nobody's name"


@on_one
async def test_a_hook_spends_a_budget_of_its_own_and_says_in_the_thread_when_it_is_used_up(
    tmp_path: Path, name: str
) -> None:
    budgets = [{"scope": "person", "which": "hook:alertmanager", "period": "day", "tokens": 3_000}]
    async with opened(tmp_path, name, more={"team": TEAM, "budgets": budgets}, **{"as": "oncall-bot"}) as chat:
        service = chat.service
        answers(service, "Looked at it. " * 2_000)
        assert await post(service, "alertmanager", hook_payloads.alertmanager()) == 202
        await begun(chat, "🔔 Hook “alertmanager”")
        await until(lambda: bool(chat.below(TOPIC)), what="the answer")
        await service.quiet()
        calls = len(asked(service))
        assert await post(service, "alertmanager", hook_payloads.alertmanager("HighLatency", "DiskFull")) == 202
        await said(chat, "budget of 3,000 tokens a day is used up")
        await service.quiet()
        assert len(asked(service)) == calls, "nobody works on it"
        assert any("DiskFull" in each for each in chat.below(TOPIC)), "it is posted all the same"
        service.rigs[name].mutter(ask(text="I look at it."), TOPIC, mention=True)
        await said(chat, "I look at it.")
        await service.quiet()
        payers = {f"{name}:{PEOPLE[name]}", f"{name}:hook:alertmanager"}
        assert {person for (person,) in service.rows("SELECT person FROM usage")} == payers


@on_one
@needs_alertmanager
async def test_alertmanager_itself_has_an_alert_worked_on_and_its_end_said(tmp_path: Path, name: str) -> None:
    """With the configuration of docs/hooks.md; amtool raises the alert, and ends it."""
    async with opened(tmp_path, name) as chat:
        service = chat.service
        answers(service, "Disk of db-7 is full.")
        await until(lambda: bool(address_of(service)), what="the listener")
        async with alertmanager(tmp_path, f"{address_of(service)}/hooks/alertmanager", TOKEN) as address:
            alert = ("alert", "add", "alertname=DiskFull", "instance=db-7", "severity=page")
            await tell(address, *alert, "--annotation=summary=97 % used")
            assert "DiskFull" in await begun(chat, "🔔 Hook “alertmanager”")
            await said(chat, "Disk of db-7 is full.")
            [request] = asked(service)
            assert "97 % used" in request
            await tell(address, *alert, f"--end={datetime.now(UTC) - timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}")
            await said(chat, "✅ **page** DiskFull")
        await service.quiet()
        assert (len(chat.posts()), len(asked(service))) == (1, 1)
        report = await call_service(service.data, "status", {})
        assert report["hooks"]["alertmanager"] | {"latest": 0} == {"kept": 2, "waiting": 0, "refused": 0, "latest": 0}
