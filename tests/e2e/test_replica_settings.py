"""Two services on one PostgreSQL database: a reload reaches both, and both together keep the limit of turns."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp
import yaml

from bot.base.exit_codes import CONFIG, OK
from tests.e2e.test_api import add_key, client_of, finished_run, post, wait_for
from tests.e2e.test_replicas import Replica, pair, server
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.support.service_process import ask, bash

__all__ = ["pair", "server"]
Pair = tuple[Replica, Replica]


def change(service: Replica, **sections: Any) -> None:
    """Change sections of the file of a service."""
    path = service.folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for name, values in sections.items():
        config[name] = {**config.get(name, {}), **values} if isinstance(values, dict) else values
    path.write_text(yaml.safe_dump(config))


async def test_a_reload_reaches_the_other_service_or_says_how_it_differs(pair: Pair) -> None:
    one, two = pair
    for each in pair:
        change(each, time_zone="Asia/Tokyo")
    code, text = await one.fawn("reload")
    assert code == OK, text
    assert "Changed: time_zone." in text
    other = (two.data / "host").read_text("ascii")
    assert other.startswith(f"{socket.gethostname()}-"), "it names the machine"
    assert f"{other}: reloaded, with the same configuration." in text
    assert f"service {other} " in (await one.fawn("status"))[1], "by the same name"
    rows = two.rows("SELECT body FROM audit ORDER BY seq")
    assert any(b'"another process"' in bytes(body) for (body,) in rows)

    change(one, time_zone="Asia/Seoul")
    code, text = await one.fawn("reload")
    assert code == OK, text
    assert "reloaded, but its configuration differs (" in text
    assert "config.elsewhere" in one.log()

    change(one, time_zone="Asia/Shanghai")
    change(two, time_zone="Nowhere/City")
    code, text = await one.fawn("reload")
    assert code == OK, text
    assert "it refused its configuration, and keeps the one before" in text
    code, text = await two.fawn("reload")
    assert code == CONFIG, "a refused file is not told to others"


async def test_the_limit_of_turns_counts_those_of_both_services(pair: Pair) -> None:
    one, two = pair
    for each in pair:
        change(each, limits={"live_turns": 1})
    assert (await one.fawn("reload"))[0] == OK
    key = await add_key(one, "ci", "telegram/7")
    async with client_of(one, key) as here, client_of(two, key) as there:
        _status, first = await post(here, "/v1/threads/a/messages", {"text": ask(word="long-", tokens=60, tok_ms=100)})
        await wait_for(here, f"/v1/messages/{first['id']}", lambda found: found["run"])
        await until(lambda: two.rows("SELECT 1 FROM conversations WHERE owner IS NOT NULL"), what="the first turn")
        _status, second = await post(there, "/v1/threads/b/messages", {"text": ask(text="short")})
        await finished_run(there, second["id"])
        [(state,)] = one.rows("SELECT state FROM runs ORDER BY id LIMIT 1")
        assert state == "done", "the short turn has waited for the long one"
        await finished_run(there, first["id"])


async def test_both_services_together_keep_the_limits_of_tools_and_of_model_calls(pair: Pair) -> None:
    """Six calls of a tool that may run four times, and six model calls at once of which two may."""
    one, two = pair
    limits = {
        "limits": {"model_calls": 2},
        "rate_limits": [{"scope": "tool", "which": "bash", "count": 4, "seconds": 3600}],
    }
    for each in pair:
        change(each, **limits)
    assert (await one.fawn("reload"))[0] == OK
    key = await add_key(one, "ci", "telegram/7")
    leases = "SELECT until FROM replicas ORDER BY id"
    before = one.rows(leases)

    def are_renewed() -> bool:
        return all(new > old for new, old in zip(one.rows(leases), before, strict=True))

    await until(are_renewed, what="a renewal of both, which counts the living")
    sent = []
    async with client_of(one, key) as here, client_of(two, key) as there:
        for number in range(6):
            text = ask(steps=[bash("echo ran")], word="w-", tokens=20, tok_ms=50, id=f"n{number}")
            at = here if number % 2 else there
            _status, message = await post(at, f"/v1/threads/{number}/messages", {"text": text})
            sent.append(message["id"])
        for id in sent:
            await finished_run(here, id)
    results = [str(m["content"]) for r in one.model.requests() for m in r.messages[-1:] if m["role"] == "tool"]
    assert sorted("ran" in each for each in results) == [False] * 2 + [True] * 4, results
    assert sum("has reached its rate limit" in each for each in results) == 2
    assert most_at_once(one.model) <= 2


def most_at_once(model: FakeModel) -> int:
    """Return how many calls were under way at once, at most."""
    begun = [(request.at, 1) for request in model.requests()]
    ended = [(request.end - 0.1, -1) for request in model.requests() if request.end]  # the client may be a bit faster
    count = most = 0
    for _at, change_by in sorted(begun + ended):
        count += change_by
        most = max(most, count)
    return most


async def test_a_pause_that_a_model_server_asks_one_service_for_is_kept_by_the_other(
    pair: Pair, model: FakeModel
) -> None:
    """The other one was never refused: its call comes when the pause is over."""
    one, two = pair
    key = await add_key(one, "ci", "telegram/7")
    await until(lambda: all("app.ready" in each.log() for each in pair), 60, "the agents")
    async with client_of(one, key) as client:
        for thread, service in (("a", one), ("b", two)):
            await finished_run(client, await sent_to(client, thread, ask(text="first")))
            moved = "UPDATE conversations SET host=:host WHERE thread LIKE :thread"
            service.change(moved, host=service.host, thread=f"%/{thread}")
        limited = await sent_to(client, "a", ask(id="limited", errors=[429], retry_after=5))
        await until(lambda: model.requests("limited"), 60, "the refusal")
        await until(lambda: "model.paused_elsewhere model=" in two.log(), what="the pause at the other service")
        await finished_run(client, await sent_to(client, "b", ask(id="other", text="later")))
        await finished_run(client, limited)
    refusal, *again = model.requests("limited")
    assert refusal.status == 429
    assert [request.status for request in [*again, *model.requests("other")]] == [200, 200]
    assert all(request.at >= refusal.at + 4.9 for request in [*again, *model.requests("other")])


async def sent_to(client: aiohttp.ClientSession, thread: str, text: str) -> int:
    """Send a message, and return its number."""
    status, sent = await post(client, f"/v1/threads/{thread}/messages", {"text": text})
    assert status == 202, sent
    return int(sent["id"])
