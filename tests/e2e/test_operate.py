"""What an operator sees and decides over HTTP, and that nobody else does."""

from __future__ import annotations

import json
import time
from typing import Any

import aiohttp

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key, client_of, get, post, wait_for
from tests.e2e.test_page import browser, make_link
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.browser import Browser
from tests.support.service_process import Service, ask

__all__ = ["browser"]
BOSS, STRANGER, CAL = 9, 77, 8
ACCESS = {
    "pairing": True,
    "allow": [str(JANE)],
    "operators": [str(BOSS)],
    "roles": [{"role": "operator", "who": [f"-5/{CAL}"]}],  # of one chat
}
READS = ("status", "turns", "queue", "channels", "dead", "audit", "audit/verify", "feedback", "usage", "schedules",
         "tasks", "waiting")  # fmt: skip


def change(service: Service, sql: str) -> None:
    service.change(sql)


async def started(start: Start, **settings: Any) -> tuple[Service, str]:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}}, **settings)
    return service, await add_key(service, "boss", f"telegram/{BOSS}", "--scopes", "operate")


async def test_the_turn_of_another_is_seen_and_stopped(telegram: FakeTelegram, start: Start) -> None:
    service, key = await started(start, limits={"live_turns": 1})
    telegram.send(ask(text="late", delay_ms=60_000))
    async with client_of(service, key) as client:
        found = await wait_for(client, "/v1/operate/turns", lambda found: found["turns"])
        [turn] = found["turns"]
        assert (turn["person"], turn["thread"]) == (f"telegram:{JANE}", f"telegram/123456/{JANE}/")
        assert abs(turn["started"] - time.time()) < 60
        telegram.send("hello", user=BOSS, chat=BOSS)
        found = await wait_for(client, "/v1/operate/queue", lambda found: found["queue"])
        assert (found["places"], found["busy"], found["next"]) == (1, 1, None)
        [waits] = found["queue"]
        assert (waits["person"], waits["messages"], waits["why"]) == (f"telegram:{BOSS}", 1, "all_busy")
        path = f"/v1/operate/runs/{turn['run']}/stop"
        assert await post(client, path, {}) == (202, {"run": turn["run"], "stopped": True})
        await wait_for(client, "/v1/operate/turns", lambda found: not found["turns"])
        await service.quiet()
        assert await post(client, path, {}) == (202, {"run": turn["run"], "stopped": False})
        assert (await post(client, "/v1/operate/runs/999/stop", {}))[0] == 404
        assert (turn["run"], "stopped") in service.rows("SELECT id, state FROM runs")
        _status, found = await get(client, f"/v1/operate/audit?kind=command&person=telegram:{BOSS}")
        [row] = found["events"]
        assert (row["what"], row["run"]) == ({"name": "stop", "via": "http"}, turn["run"])


async def test_the_state_the_past_and_what_is_broken(telegram: FakeTelegram, start: Start) -> None:
    service, key = await started(start)
    async with client_of(service, key) as client:
        for name in ("one", "two"):
            telegram.send(ask(text=name))
            await telegram.wait(JANE, name)
            await service.quiet()
        _status, state = await get(client, "/v1/operate/status")
        assert (state["healthy"], state["troubles"], state["queued"]) == (True, [], 0)
        assert [each["health"] for each in state["channels"]] == ["ready"]
        assert str(service.data) not in str(state)
        assert (await get(client, "/v1/operate/channels"))[1] == {"channels": state["channels"]}
        for by, name in (("person", f"telegram:{JANE}"), ("chat", f"telegram/123456/{JANE}/"), ("model", "main")):
            _status, found = await get(client, f"/v1/operate/usage?by={by}")
            assert [each["key"] for each in found["usage"]] == [name]
        _status, found = await get(client, "/v1/operate/usage?by=day&days=2")
        assert [each["calls"] for each in found["usage"]] == [found["total"]["calls"]]
        assert found["total"]["calls"] >= 2
        for wrong in ("by=cat", "days=0", "days=x"):
            status, problem = await get(client, f"/v1/operate/usage?{wrong}")
            assert (status, problem["code"]) == (400, "bad_query")
        _status, found = await get(client, "/v1/operate/audit")
        numbers = [each["seq"] for each in found["events"]]
        assert numbers == sorted(numbers, reverse=True)
        assert {each["where"] for each in found["events"]} <= {f"telegram/123456/{JANE}/", f"web//telegram%3A{BOSS}/"}
        _status, found = await get(client, "/v1/operate/audit/verify")
        assert found["valid"]
        async with client.get("/v1/operate/schedules") as answer:
            tag = answer.headers["ETag"]
        async with client.get("/v1/operate/schedules", headers={"If-None-Match": tag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")


async def test_no_word_of_a_direct_chat_reaches_an_operator(
    telegram: FakeTelegram, start: Start, browser: Browser, bubblewrap: None
) -> None:
    service, key = await started(start, limits={"live_turns": 1})
    asks = {"calls": [{"name": "ask_clarification", "args": {"question": "Which secretword?", "options": ["a"]}}]}
    telegram.send(ask(steps=[asks], text="secretword done"), topic=3)
    await telegram.wait(JANE, "Which secretword?")
    await service.quiet()
    row = f"(1, '{JANE}', 'Jane', -1, {time.time()})"
    change(service, f"INSERT INTO feedback (run, person, name, value, at) VALUES {row}")  # noqa: S608 — of the test
    slow = {"calls": [{"name": "bash", "args": {"command": "sleep 600 # secretword"}}]}
    telegram.send(ask(steps=[slow], text="secretword"))
    async with client_of(service, key) as client:
        await wait_for(client, "/v1/operate/turns", lambda found: [turn for turn in found["turns"] if turn["steps"]])
        change(service, "UPDATE conversations SET title='about a secretword'")
        for chat in (JANE, BOSS):
            telegram.send("a waiting secretword", user=chat, chat=chat, topic=7)
        shown = {name: (await get(client, f"/v1/operate/{name}"))[1] for name in READS}
        assert [turn["doing"] for turn in shown["turns"]["turns"]] == [""]
        assert len(shown["feedback"]["feedback"]) == 1
        assert [name for name, found in shown.items() if "secretword" in str(found)] == []
    tab = await browser.tab(await make_link(service, f"telegram/{BOSS}"))
    await tab.until("document.querySelector('#text')")
    seen = await tab.eval("fetch('/page/operate').then((answer) => answer.json()).then(JSON.stringify)")
    assert len(json.loads(seen)["asked"]) == len(json.loads(seen)["turns"]) == 1
    assert "secretword" not in seen


async def test_a_dead_letter_is_sent_again_or_dropped(telegram: FakeTelegram, start: Start) -> None:
    service, key = await started(start)
    telegram.send(ask(text="hello"))
    await telegram.wait(JANE, "hello")
    await service.quiet()
    change(service, "UPDATE outbox SET state=3, error='blocked'")
    async with client_of(service, key) as client:
        _status, found = await get(client, "/v1/operate/dead")
        [letter] = found["dead"]
        assert (letter["error"], letter["thread"]) == ("blocked", f"telegram/123456/{JANE}/")
        assert "hello" not in str(found), "the words of others stay on the machine"
        status, done = await post(client, f"/v1/operate/dead/{letter['id']}/requeue", {})
        assert (status, done) == (200, {"id": letter["id"], "state": "requeued"})
        await service.quiet()
        assert (await get(client, "/v1/operate/dead"))[1]["dead"] == []
        status, problem = await post(client, f"/v1/operate/dead/{letter['id']}/requeue", {})
        assert (status, problem["code"]) == (404, "not_found")
        change(service, "UPDATE outbox SET state=3, error='blocked'")
        async with client.delete(f"/v1/operate/dead/{letter['id']}") as answer:
            assert (answer.status, (await answer.json())["state"]) == (200, "dropped")
        assert (await get(client, "/v1/operate/dead"))[1]["dead"] == []
        _status, found = await get(client, "/v1/operate/audit?kind=dead")
        assert [each["kind"] for each in found["events"]] == ["dead.dropped", "dead.requeued"]
        assert {each["who"] for each in found["events"]} == {f"web:telegram:{BOSS}"}


async def test_a_stranger_is_let_in_and_questions_are_answered(telegram: FakeTelegram, start: Start) -> None:
    service, key = await started(start)
    telegram.send(ask(text="hello"), user=BOSS, chat=BOSS)
    await telegram.wait(BOSS, "hello")
    await service.quiet()
    telegram.send("may I?", user=STRANGER, chat=STRANGER)
    question = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["Red", "Blue"]}}
    telegram.send(ask(steps=[{"calls": [question]}], text="thanks"), user=BOSS, chat=BOSS)
    async with client_of(service, key) as client:
        found = await wait_for(client, "/v1/operate/waiting", lambda found: len(found["waiting"]) == 2)
        by_kind = {each["kind"]: each for each in found["waiting"]}
        path = f"/v1/operate/waiting/{by_kind['pair']['number']}/answer"
        status, problem = await post(client, path, {"answer": "Perhaps"})
        assert (status, problem["code"]) == (422, "no_option")
        assert (await post(client, path, {"answer": "Let in"}))[0] == 202
        assert (await post(client, path, {"answer": "Let in"}))[0] in (404, 409)
        path = f"/v1/operate/waiting/{by_kind['ask']['number']}/answer"
        assert (await post(client, path, {"answer": "Blue"}))[0] == 202
        await telegram.wait(BOSS, "thanks")
        await service.quiet()
        assert (f"{STRANGER}", 1) in service.rows("SELECT person, allowed FROM people")
        assert (await get(client, "/v1/operate/waiting"))[1] == {"waiting": [], "next": None}


async def test_more_than_a_page_waits_and_the_last_one_is_answered(telegram: FakeTelegram, start: Start) -> None:
    service, key = await started(start)
    telegram.send(ask(text="hello"), user=BOSS, chat=BOSS)
    await telegram.wait(BOSS, "hello")
    strangers = range(5000, 5053)
    for stranger in strangers:
        telegram.send("may I?", user=stranger, chat=stranger)
    codes = "SELECT count(*) FROM people WHERE code != ''"
    await until(lambda: service.rows(codes) == [(len(strangers),)], 60)
    async with client_of(service, key) as client:
        first = await wait_for(client, "/v1/operate/waiting", lambda found: len(found["waiting"]) == 50)
        assert first["next"]
        _status, second = await get(client, f"/v1/operate/waiting?cursor={first['next']}")
        assert (len(second["waiting"]), second["next"]) == (3, None)
        both = [*first["waiting"], *second["waiting"]]
        assert len({each["number"] for each in both}) == len(strangers)
        assert [each["since"] for each in both] == sorted(each["since"] for each in both)
        path = f"/v1/operate/waiting/{second['waiting'][-1]['number']}/answer"
        assert (await post(client, path, {"answer": "Let in"}))[0] == 202
        await until(lambda: service.rows("SELECT count(*) FROM people WHERE allowed=1") == [(1,)])
        found = await wait_for(
            client, f"/v1/operate/waiting?cursor={first['next']}", lambda it: len(it["waiting"]) == 2
        )
        assert found["next"] is None
        assert (await get(client, "/v1/operate/waiting?cursor=nonsense"))[0] == 400


async def test_nobody_else_sees_or_does_any_of_it(start: Start) -> None:
    service, _key = await started(start)
    jane = await add_key(service, "jane", f"telegram/{JANE}", "--scopes", "threads,operate")
    cal = await add_key(service, "cal", f"telegram/{CAL}", "--scopes", "operate")
    plain = await add_key(service, "plain", f"telegram/{BOSS}")
    actions = [("POST", path) for path in ("runs/1/stop", "dead/1/requeue", "waiting/1/answer")] + [
        ("DELETE", "dead/1")
    ]

    async def refusals(client: aiohttp.ClientSession) -> set[tuple[int, str]]:
        found = set()
        for method, path in [*(("GET", path) for path in READS), *actions]:
            async with client.request(method, f"/v1/operate/{path}", json={"answer": "a"}) as answer:
                found.add((answer.status, (await answer.json(content_type=None))["code"]))
        return found

    async with client_of(service, cal) as client:
        assert await refusals(client) == {(403, "no_access")}
    change(service, "DELETE FROM audit")
    async with client_of(service, jane) as client:
        assert await refusals(client) == {(403, "no_access")}
    denied = service.rows("SELECT 1 FROM audit WHERE CAST(body AS TEXT) LIKE '%access.denied%'")
    assert len(denied) == len(READS) + len(actions)
    async with client_of(service, plain) as client:
        assert await refusals(client) == {(403, "no_scope")}
