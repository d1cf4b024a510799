"""What a person has, changed over HTTP as the commands of the chats change it: threads, schedules, memory, tasks."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import aiohttp

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key, client_of, finished_run, get, post, wait_for
from tests.e2e.test_schedules import SETTINGS, press, propose
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask

Json = dict[str, Any]


def fill(service: Service, table: str, **values: Any) -> int:
    names, marks = ", ".join(values), ", ".join("?" for _each in values)
    with sqlite3.connect(service.data / "fawn.db") as store:
        sql = f"INSERT INTO {table}({names}) VALUES ({marks})"  # noqa: S608 — constants
        return int(store.execute(sql, [*values.values()]).lastrowid or 0)


async def request(client: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> tuple[int, Json]:
    async with client.request(method, path, json=body) as answer:
        return answer.status, await answer.json(content_type=None) if answer.status != 204 else {}


async def test_threads_are_begun_named_found_repeated_and_deleted(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    theirs = await add_key(service, "theirs", "telegram/8")
    async with client_of(service, key) as client:
        status, begun = await post(client, "/v1/threads", {"id": "t1", "title": "  The  plan "})
        assert (status, begun["id"], begun["title"]) == (201, "t1", "The plan")
        assert (await post(client, "/v1/threads", {"id": "t1"}))[0] == 409
        assert (await post(client, "/v1/threads", {}))[0] == 201
        wrongs: list[Any] = [{"id": "a/b"}, {"id": 1}, {"title": "x" * 201}, {"name": "x"}, []]
        for wrong in wrongs:
            assert (await post(client, "/v1/threads", wrong))[0] in (400, 422)
        status, named = await request(client, "PATCH", "/v1/threads/t1", {"title": "Budget"})
        assert (status, named["title"]) == (200, "Budget")
        _status, sent = await post(client, "/v1/threads/t1/messages", {"text": ask(text="zebra stripes")})
        run = await finished_run(client, sent["id"])
        _status, found = await get(client, "/v1/search?q=stripes%20zebra")
        assert ("agent", "t1", "zebra stripes") in [
            (each["by"], each["thread"], each["text"]) for each in found["entries"]
        ]
        assert (await get(client, "/v1/search?q=%20"))[0] == 400
        status, again = await post(client, f"/v1/runs/{run['id']}/retry", {})
        assert (status, again) == (202, {"run": run["id"], "thread": "t1"})
        await wait_for(
            client,
            "/v1/threads/t1",
            lambda found: [each["text"] for each in found["entries"]].count("zebra stripes") == 2,
        )
        status, problem = await post(client, f"/v1/runs/{run['id']}/retry", {})
        assert (status, problem["code"]) == (409, "not_latest")
        _status, late = await post(client, "/v1/threads/t1/messages", {"text": ask(text="late", delay_ms=60_000)})
        await wait_for(client, f"/v1/messages/{late['id']}", lambda found: found["run"])
        async with client_of(service, theirs) as other:
            for method in ("PATCH", "DELETE"):
                assert (await request(other, method, "/v1/threads/t1", {"title": "mine"}))[0] == 404
            assert (await get(other, "/v1/search?q=zebra"))[1] == {"entries": [], "next": None}
        assert await request(client, "DELETE", "/v1/threads/t1") == (204, {})
        assert (await get(client, "/v1/threads/t1"))[0] == 404
        assert (await request(client, "DELETE", "/v1/threads/t1"))[0] == 404
        await until(lambda: not service.rows("SELECT 1 FROM jobs WHERE kind='forget-thread'"), what="the deletion")
        assert (await get(client, "/v1/search?q=zebra"))[1] == {"entries": [], "next": None}
        _status, sent = await post(client, "/v1/threads/t1/messages", {"text": ask(text="anew")})
        await finished_run(client, sent["id"])
        _status, thread = await get(client, "/v1/threads/t1")
        assert [each["text"] for each in thread["entries"] if each["by"] == "agent"] == ["anew"]
    assert rows_with(service, "zebra") == set()


def rows_with(service: Service, word: str) -> set[str]:
    """Return the tables that have the word."""
    with sqlite3.connect(service.data / "fawn.db") as store:
        return {line.split('"')[1] for line in store.iterdump() if word in line and line.startswith("INSERT")}


async def test_schedules_are_changed_as_the_command_does(telegram: FakeTelegram, start: Start) -> None:
    service = await start(http=HTTP, **SETTINGS)
    key = await add_key(service, "jane", f"telegram/{JANE}")
    theirs = await add_key(service, "theirs", "telegram/8")
    press(telegram, await propose(telegram, every_minutes=60))
    await until(lambda: service.rows("SELECT 1 FROM schedules WHERE state='active'"), what="the schedule")
    async with client_of(service, key) as client:
        [found] = (await get(client, "/v1/schedules"))[1]["schedules"]
        number, what = found["id"], found["what"]
        assert (what, found["state"], found["last"]) == ("Read the news", "active", None)
        path = f"/v1/schedules/{number}"
        async with client_of(service, theirs) as other:
            assert (await post(other, f"{path}/pause", {}))[0] == 404
            assert (await request(other, "DELETE", path))[0] == 404
        status, paused = await post(client, f"{path}/pause", {})
        assert (status, paused["schedule"]["state"]) == (200, "paused")
        assert "paused" in paused["said"]
        assert (await post(client, f"{path}/resume", {}))[1]["schedule"]["state"] == "active"
        assert (await post(client, f"{path}/run", {}))[0] == 202
        ran = await wait_for(client, "/v1/schedules", lambda found: (found["schedules"][0]["last"] or {}).get("run"))
        assert ran["schedules"][0]["last"]["run"]
        assert (await request(client, "DELETE", path))[1]["schedule"] is None
        assert (await get(client, "/v1/schedules"))[1] == {"schedules": [], "next": None}
        assert (await post(client, f"{path}/pause", {}))[0] == 404
    kinds = [row[0] for row in service.rows("SELECT CAST(body AS TEXT) FROM audit") if "schedule.changed" in row[0]]
    assert [each for verb in ("pause", "resume", "delete") for each in kinds if f'"action":"{verb}"' in each]


async def test_memory_is_read_and_forgotten(start: Start) -> None:
    service = await start(http=HTTP, memory={"enabled": True, "wait_seconds": 0})
    key = await add_key(service, "ci", "telegram/7")
    theirs = await add_key(service, "theirs", "telegram/8")
    now = time.time()
    values = {"kind": "preference", "subject": "tea", "confidence": 0.9, "used": now, "uses": 0, "name": "Ada"}
    numbers = [
        fill(service, "memory", account="web/", owner="telegram:7", audience="x", text=f"fact {each}", said=now + each,
             thread="web//telegram%3A7/t", message="", links="", **values)
        for each in range(60)
    ]  # fmt: skip
    async with client_of(service, key) as client:
        _status, first = await get(client, "/v1/memory")
        assert (len(first["memories"]), first["on"], first["memories"][0]["text"]) == (50, True, "fact 59")
        _status, second = await get(client, f"/v1/memory?cursor={first['next']}")
        assert ([each["text"] for each in second["memories"]][-1], second["next"]) == ("fact 0", None)
        async with client_of(service, theirs) as other:
            assert (await get(other, "/v1/memory"))[1]["memories"] == []
            assert (await request(other, "DELETE", f"/v1/memory/{numbers[0]}"))[0] == 404
        assert await request(client, "DELETE", f"/v1/memory/{numbers[0]}") == (200, {"id": numbers[0]})
        assert (await request(client, "DELETE", f"/v1/memory/{numbers[0]}"))[0] == 404


async def test_choices_tasks_and_usage(start: Start) -> None:
    roles = [{"name": "small", "rights": ["talk"], "models": ["main"]}]
    access = {"open": True, "roles": [{"role": "small", "who": ["7"]}]}
    agents = [{"name": "coder", "description": "writes code"}]
    service = await start(http=HTTP, channels={"telegram": {"access": access}}, team={"roles": roles}, agents=agents)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        assert [each["name"] for each in (await get(client, "/v1/models"))[1]["models"]] == ["main"]
        assert [each["name"] for each in (await get(client, "/v1/agents"))[1]["agents"]] == ["default", "coder"]
        _status, found = await get(client, "/v1/skills")
        assert {each["state"] for each in found["skills"]} == {"enabled"}
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(text="hi")})
        await finished_run(client, sent["id"])
        await service.quiet()
        _status, usage = await get(client, "/v1/usage")
        assert [(each["key"], each["calls"] > 0) for each in usage["usage"]] == [("main", True)]
        empty = {"name": "", "language": "", "guest": 0, "private": 1, "conversation": "", "what": "x", "follow_up": ""}
        ended = fill(service, "tasks", key="a", kind="agent", state="done", channel="web", person="telegram:7",
                     thread="web//telegram%3A7/t", title="Look", created=time.time(), **empty)  # fmt: skip
        other = fill(service, "tasks", key="b", kind="agent", state="queued", channel="web", person="telegram:8",
                     thread="web//telegram%3A8/t", title="Other", created=time.time(), **empty)  # fmt: skip
        _status, found = await get(client, "/v1/tasks")
        assert [(each["id"], each["title"], each["state"]) for each in found["tasks"]] == [(ended, "Look", "done")]
        assert (await post(client, f"/v1/tasks/{ended}/cancel", {}))[0] == 409
        assert (await post(client, f"/v1/tasks/{other}/cancel", {}))[0] == 404
        assert (await post(client, f"/v1/tasks/{other}/retry", {}))[0] == 404


async def test_lists_of_ones_own_have_pages(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    task = {"name": "", "language": "", "guest": 0, "private": 1, "conversation": "", "what": "x", "follow_up": ""}
    task |= {"kind": "agent", "state": "done", "channel": "web", "person": "telegram:7", "created": time.time()}
    mine = [
        fill(service, "tasks", key=f"k{number}", thread="web//telegram%3A7/t", title="Look", **task)
        for number in range(120)
    ]
    async with client_of(service, key) as client:
        found: list[int] = []
        cursor: Any = ""
        while cursor is not None:
            status, page = await get(client, f"/v1/tasks?cursor={cursor}")
            assert (status, len(page["tasks"]) <= 50) == (200, True)
            found += [each["id"] for each in page["tasks"]]
            cursor = page["next"]
        assert found == mine[::-1]
        for path in ("/v1/schedules", "/v1/search"):
            assert (await get(client, f"{path}?q=x&cursor=broken"))[0] == 400
