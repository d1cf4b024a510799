"""Hooks that post into a thread in which people talk with the agent, on every platform: it knows what was posted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_hooks import TOKEN, post
from tests.fakes import hook_payloads
from tests.fakes.model import Answer
from tests.fakes.model_script import text_of
from tests.fakes.server import Json
from tests.support.thread_talk import TOPIC, ThreadTalk
from tests.unit.bot.test_hook_endpoint import SIGNATURES

LISTENER: dict[str, Any] = {"http": {"listen": "127.0.0.1:0"}, "sandbox": {"provider": "none"}}


def look_at_reports(body: Json) -> Answer | None:
    """Answer the turn of a hook with two names that its report does not have."""
    said = text_of(body["messages"][-1])
    return Answer("Hosts db-7 and db-9 are slow.") if "[This request comes from a hook" in said else None


@pytest.mark.parametrize("name", ["slack", "feishu"])
async def test_the_thread_knows_what_a_hook_posted_in_it_once_and_after_a_kill(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, **LISTENER) as talk:
        service = talk.service
        talk.say("hello")
        await talk.shows("hello")
        await service.quiet()
        [(jane,)] = service.rows("SELECT requester FROM runs")
        hook = {
            "to": str(service.rigs[name].thread(TOPIC)),
            "as": f"@{jane}",
            "secret": TOKEN,
            "signature": SIGNATURES["script"],
        }
        await service.kill()
        service.configure({**LISTENER, "hooks": {"script": {**hook, "gather_seconds": 0.3}}})
        talk.model.script = look_at_reports
        await service.start()
        assert await post(service, "script", hook_payloads.script()) == 202
        assert "🔔 Hook “script: " in await talk.shows("db-7")
        await service.quiet()
        await service.restart()
        await talk.say_and_read("which ones?")
        await service.quiet()
        assert talk.last_words("which ones?").count("Hosts db-7 and db-9 are slow.") == 1
        assert talk.count("🔔 Hook “script: ") == 1
        talk.say("and now?")
        await talk.shows("and now?")
        await service.quiet()
        assert talk.last_words("and now?").count("Hosts db-7 and db-9 are slow.") == 1
