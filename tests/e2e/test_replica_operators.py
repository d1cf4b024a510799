"""Two services on one PostgreSQL database: operators see and stop the turns of both, at either."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml

from bot.base.exit_codes import OK
from tests.e2e.test_api import add_key, client_of, finished_run, get, post, wait_for
from tests.e2e.test_page import browser, make_link
from tests.e2e.test_replicas import Replica, pair, server
from tests.fakes.server import until
from tests.support.browser import Browser
from tests.support.service_process import ask, bash

__all__ = ["browser", "pair", "server"]
Pair = tuple[Replica, Replica]
BOSS_ID = 7
BOSS = f"telegram/{BOSS_ID}"
STARTED = "document.querySelector('#text')"


@pytest.fixture
async def operated(pair: Pair) -> Pair:
    """The two services, with an operator."""
    for each in pair:
        path = each.folder / "config.yaml"
        config = yaml.safe_load(path.read_text())
        config["channels"]["telegram"]["access"] = {"operators": [str(BOSS_ID)]}
        path.write_text(yaml.safe_dump(config))
    code, text = await pair[0].fawn("reload")
    assert code == OK, text
    return pair


def host_of(service: Replica) -> str:
    return (service.data / "host").read_text().strip()


async def begin(client: Any, thread: str, service: Replica) -> dict[str, Any]:
    """Begin a turn that sleeps in a command at this service, which has the files of its thread; return the message."""
    path = f"/v1/threads/{thread}/messages"
    status, sent = await post(client, path, {"text": ask(text="first")})
    assert status == 202, sent
    await finished_run(client, sent["id"])
    moved = "UPDATE conversations SET host=:host WHERE thread LIKE :thread"
    service.change(moved, host=host_of(service), thread=f"%/{thread}")
    status, sent = await post(client, path, {"text": ask(steps=[bash("sleep 600")], text="late")})
    assert status == 202, sent
    await wait_for(client, f"/v1/messages/{sent['id']}", lambda found: found["run"])
    return dict(sent)


async def top(service: Replica) -> list[dict[str, Any]]:
    code, text = await service.fawn("top", "--json")
    assert code == OK, text
    return sorted(json.loads(text)["turns"], key=lambda turn: turn["thread"])


async def test_turns_of_both_services_are_seen_at_either_and_stopped_from_the_other(operated: Pair) -> None:
    one, two = operated
    key = await add_key(one, "boss", BOSS, "--scopes", "threads,operate")
    async with client_of(one, key) as here, client_of(two, key) as there:
        first, second = await begin(here, "a", one), await begin(there, "b", two)
        hosts = {host_of(one), host_of(two)}
        for service, client, other in ((one, here, two), (two, there, one)):
            found = await wait_for(
                client,
                "/v1/operate/turns",
                lambda seen: [1 for turn in seen["turns"] if "sleep" in turn["doing"]] == [1, 1],
            )
            turns = {turn["thread"].rpartition("/")[2]: turn for turn in found["turns"]}
            assert set(turns) == {"a", "b"}
            assert {turn["host"] for turn in turns.values()} == hosts
            [elsewhere] = [turn for turn in turns.values() if not turn["here"]]
            assert elsewhere["host"] == host_of(other)
            assert (elsewhere["replica"], elsewhere["host"]) in service.rows("SELECT id, host FROM replicas")
            assert (elsewhere["person"], elsewhere["attempt"]) == ("telegram:7", 1)
            assert abs(elsewhere["started"] - time.time()) < 120
            assert (elsewhere["steps"], elsewhere["calls"]) == (1, 1)
            assert elsewhere["tokens"] > 0
            _status, queue = await get(client, "/v1/operate/queue")
            assert queue["busy"] == 2
            assert (await get(client, "/v1/operate/status"))[1]["turns"] == 2
            shown = await top(service)
            assert [turn["host"] for turn in shown] == [turns["a"]["host"], turns["b"]["host"]]
            assert all("sleep" in turn["doing"] and turn["seconds"] < 120 for turn in shown)
            _code, text = await service.fawn("top", "--once")
            assert text.startswith("turns 2,")
            assert all(host in text for host in hosts)
            assert "\nrunning turns: 2, queued" in (await service.fawn("status"))[1]
        one.telegram.send("/status", chat=BOSS_ID)
        await one.telegram.wait(BOSS_ID, ", 2 turns running.\n")
        runs = {turn["thread"].rpartition("/")[2]: turn["run"] for turn in found["turns"]}
        assert await post(here, f"/v1/operate/runs/{runs['b']}/stop", {}) == (202, {"run": runs["b"], "stopped": True})
        await finished_run(there, second["id"], "stopped")
        found = await wait_for(here, "/v1/operate/turns", lambda seen: len(seen["turns"]) == 1)
        assert found["turns"][0]["here"]
        assert await post(there, f"/v1/operate/runs/{runs['a']}/stop", {}) == (202, {"run": runs["a"], "stopped": True})
        await finished_run(here, first["id"], "stopped")


async def test_the_turns_of_a_dead_service_are_not_shown_when_its_lease_has_ended(operated: Pair) -> None:
    one, two = operated
    key = await add_key(one, "boss", BOSS, "--scopes", "threads,operate")
    async with client_of(one, key) as here, client_of(two, key) as there:
        await begin(here, "a", one)
        gone = host_of(one)
        await wait_for(there, "/v1/operate/turns", lambda seen: [turn["host"] for turn in seen["turns"]] == [gone])
        await one.kill()
        await wait_for(there, "/v1/operate/turns", lambda seen: [turn["here"] for turn in seen["turns"]] == [True])


async def test_the_page_shows_a_turn_of_the_other_service_and_stops_it(operated: Pair, browser: Browser) -> None:
    one, two = operated
    key = await add_key(one, "boss", BOSS, "--scopes", "threads,operate")
    tab = await browser.tab(await make_link(two, BOSS))
    await tab.until(STARTED)
    await tab.click("[data-view=operate]")
    async with client_of(one, key) as here:
        sent = await begin(here, "a", one)
        card = ".card[aria-labelledby=card-turns]"
        await tab.until(f"document.querySelector('{card}')?.innerText.includes('{host_of(one)}')", what="its host")
        await tab.until(f"document.querySelector('{card}').innerText.includes('sleep')", what="what it does")
        assert "(this one)" not in await tab.text(card)
        assert await tab.count(f"{card} td .plain") == 1, "its log is elsewhere"
        await tab.click(f"{card} .plain.danger")
        await finished_run(here, sent["id"], "stopped")
        await until(lambda: one.rows("SELECT 1 FROM conversations WHERE owner IS NOT NULL") == [], what="its end")
        await tab.until(f"!document.querySelector('{card}').innerText.includes('{host_of(one)}')", what="gone")
    assert tab.problems == []
