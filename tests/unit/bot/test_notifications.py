"""Notifications: in the right place, at the right time, outside of the chats, and never with a secret in the log."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agent.blocks import Final
from agent.messages import Author, Message, Origin, Thread
from agent.setting import Secret
from bot.config.operations import PushConfig, PushTarget
from bot.config.schema import Config
from bot.database.database import Database
from bot.journey.outbox_posts import Redirect, open_home, redirect_answer
from bot.main.features import gather_waits
from bot.notifications.digests import DigestJobs
from bot.notifications.push import PushFailed, PushJobs
from bot.rights.current import Current
from bot.service.pings import Ping, held_until, route_ping
from bot.storage import jobs, outbox, people
from bot.storage.jobs import BackgroundJob
from bot.storage.outbox import Holder
from bot.storage.people import PersonRow
from tests.fakes.push import PushServers, serve_push
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

GROUP, DIRECT = Thread("telegram", "bot", "-100"), Thread("telegram", "bot", "7")
TOPIC = replace(DIRECT, topic="31")  # which may be gone
JANE = Message(DIRECT, "m1", "1", Author("7", "Jane"), "hello", 0.0, private=True, origin=Origin.PERSON)
PING = Ping("7", GROUP, "Done after 2 min.", "run:1", "done")
BERLIN = ZoneInfo("Europe/Berlin")


class PushBench:
    """A database, two receivers, and what the jobs do."""

    def __init__(self, store: Database, servers: PushServers) -> None:
        self.store = store
        self.servers = servers
        self.current = Current(Config())
        self.allow(bark_servers=(servers.base_url,), private_addresses=True)
        self.push = PushJobs(store, self.current)

    def allow(self, **values: object) -> None:
        self.current.config = replace(self.current.config, push=PushConfig(**values))  # type: ignore[arg-type]  # any of its settings

    async def prefer(self, **values: str) -> None:
        await self.store.run(lambda execute: people.store_address(execute, JANE))
        for name, value in values.items():
            await self.store.run(partial(people.set_preference, message=JANE, column=name, value=value))

    async def route(self, ping: Ping = PING, now: float = 1000.0) -> bool:
        return await self.store.run(lambda execute: route_ping(execute, self.current.config, ping, now))

    async def claim(self, now: float = 1e12) -> list[BackgroundJob]:
        return await self.store.run(lambda execute: jobs.claim_jobs(execute, "me", now, 10))

    async def end(self, job: BackgroundJob) -> list[tuple[str, str, str]]:
        """Push, and record the end. Returns what is posted instead."""
        if ended := await self.push.send(job):
            await self.store.run(ended)
        return await self.rows()

    async def rows(self) -> list[tuple[str, str, str]]:
        """The thread, text and mention of what the outbox has."""
        items = await self.store.run(lambda execute: outbox.claim_rows(execute, Holder("me"), 10))
        finals = [(str(item.thread), Final.load(item.payload)) for item in items]
        return [(thread, final.text, final.mention) for thread, final in finals]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[PushBench]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store, serve_push("key7", secret=b"0123456789") as servers:
        yield PushBench(store, servers)


async def test_a_ping_goes_where_the_person_wants_it(bench: PushBench) -> None:
    assert await bench.route(), "nobody chose anything"
    await bench.prefer(notify_where="dm")
    assert not await bench.route()
    assert await bench.rows() == [(str(DIRECT), PING.text, "")]
    assert await bench.route(replace(PING, thread=DIRECT, key="run:2")), "the private chat is the place itself"
    await bench.store.run(lambda execute: people.set_notify(execute, JANE, -1.0))
    assert not await bench.route(replace(PING, key="run:3"))
    assert await bench.rows() == []


async def test_what_goes_to_the_private_chat_goes_to_none_of_its_topics(bench: PushBench) -> None:
    await bench.prefer(notify_where="dm", zone="UTC")
    await bench.store.run(lambda execute: people.store_address(execute, replace(JANE, thread=TOPIC)))
    assert not await bench.route()
    assert await bench.route(replace(PING, thread=replace(DIRECT, topic="32"), key="run:2")), "it is in that chat"
    await bench.prefer(digest="18:00")
    await bench.store.run(lambda execute: people.store_address(execute, replace(JANE, thread=TOPIC)))
    assert not await bench.route(replace(PING, key="run:3"))
    [job] = await bench.claim()
    deliver = await DigestJobs(bench.store, bench.current, gather_waits(bench.current).listed).run(job)
    await bench.store.run(deliver)
    assert [thread for thread, _text, _mention in await bench.rows()] == [str(DIRECT)] * 2


@pytest.mark.parametrize(
    ("quiet", "digest", "at", "until"),
    [
        ("", "", "2026-03-01 23:00", "2026-03-01 23:00"),
        ("22:00-07:00", "", "2026-03-01 21:59", "2026-03-01 21:59"),
        ("22:00-07:00", "", "2026-03-01 22:00", "2026-03-02 07:00"),
        ("22:00-07:00", "", "2026-03-02 06:59", "2026-03-02 07:00"),
        ("22:00-07:00", "", "2026-03-02 07:00", "2026-03-02 07:00"),
        ("22:00-07:00", "", "2026-03-28 23:00", "2026-03-29 07:00"),  # the clocks change in between
        ("12:00-13:00", "", "2026-03-01 12:30", "2026-03-01 13:00"),
        ("", "18:00", "2026-03-01 17:00", "2026-03-01 18:00"),
        ("", "18:00", "2026-03-01 18:00", "2026-03-02 18:00"),
        ("17:00-19:00", "18:00", "2026-03-01 12:00", "2026-03-01 19:00"),
    ],
)
async def test_quiet_hours_and_digests_hold_back_until(quiet: str, digest: str, at: str, until: str) -> None:
    row = PersonRow("telegram", "7", "", 0, "", 0.0, "", None, 0, b"", 1, "Europe/Berlin", "", quiet, digest, "")
    now = datetime.fromisoformat(at).replace(tzinfo=BERLIN).timestamp()
    assert held_until(row, "", now) == datetime.fromisoformat(until).replace(tzinfo=BERLIN).timestamp()


async def test_what_was_held_back_comes_together_at_the_end(bench: PushBench) -> None:
    await bench.prefer(zone="UTC", quiet="22:00-07:00")
    night = datetime(2026, 3, 1, 23, tzinfo=ZoneInfo("UTC")).timestamp()
    for number in (1, 2, 2):
        assert not await bench.route(replace(PING, key=f"run:{number}", text=f"Done {number}."), night)
    assert await bench.claim(night + 7.9 * 3600) == []
    [job] = await bench.claim(night + 8 * 3600)
    digests = DigestJobs(bench.store, bench.current, gather_waits(bench.current).listed)
    await bench.prefer(quiet="")
    await bench.store.run(await digests.run(job))
    assert await bench.rows() == [(str(GROUP), "2 notifications:\n- Done 1.\n- Done 2.", "7")]
    await bench.store.run(await digests.run(job))
    assert await bench.rows() == []


async def test_bark_shows_a_notification_once_however_often_it_is_tried(
    bench: PushBench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.prefer(notify_where="push", push_url=f"{bench.servers.base_url}/key7/")
    assert not await bench.route()
    [job] = await bench.claim()
    bench.servers.failures = 1
    with pytest.raises(PushFailed, match="HTTP status 500"):
        await bench.push.send(job)
    for _ in range(2):
        assert await bench.end(job) == []
    [shown] = bench.servers.shown.values()
    assert shown["body"] == PING.text
    assert bench.servers.attempts == 3
    assert b"key7" not in job.payload
    assert "key7" not in caplog.text


async def test_what_bark_refuses_is_posted_in_the_chat_instead(bench: PushBench) -> None:
    await bench.prefer(notify_where="push", push_url=f"{bench.servers.base_url}/gone")
    await bench.route()
    [job] = await bench.claim()
    instead = await bench.push.send(job)
    assert instead is not None
    await bench.store.run(instead)
    [(thread, text, mention)] = await bench.rows()
    assert (thread, mention) == (str(GROUP), "7")
    assert text.startswith(PING.text)
    assert "gone" not in text
    bench.allow()
    assert await bench.push.send(job) is not None, "the server is not allowed any more"
    assert bench.servers.attempts == 1


@pytest.mark.parametrize(
    "secret", ["0123456789", f"whsec_{base64.b64encode(b'0123456789').decode()}"], ids=["text", "base64"]
)
async def test_a_webhook_is_signed_and_gets_the_events_and_people_of_its_target(bench: PushBench, secret: str) -> None:
    hook = PushTarget("ops", Secret(f"{bench.servers.base_url}/hook"), secret=Secret(secret), events=("failed",))
    bench.allow(targets=(hook, replace(hook, name="other", people=("telegram/8",))), private_addresses=True)
    assert await bench.route()
    assert await bench.route(replace(PING, event="failed")), "the chat gets it, too"
    [job] = await bench.claim()
    assert await bench.end(job) == []
    [body] = bench.servers.hooks.values()
    assert body["type"] == "fawn.failed"
    assert body["data"] == {"person": "7", "text": PING.text, "thread": str(GROUP)}
    bench.allow(targets=(replace(hook, secret=Secret("wrong")),), private_addresses=True)
    assert await bench.end(job) == [], "refused for good"
    assert bench.servers.refused == ["No matching signature found"]


async def test_a_private_address_is_requested_only_if_the_configuration_says_so(bench: PushBench) -> None:
    for host in (bench.servers.base_url, "http://169.254.169.254", "http://[::1]", "http://localhost"):
        hook = PushTarget("ops", Secret(f"{host}/hook"))
        bench.allow(targets=(hook,))
        await bench.route(replace(PING, key=host))
        [job] = await bench.claim()
        assert await bench.end(job) == []
    assert bench.servers.attempts == 0


async def test_the_answer_of_a_chat_that_is_gone_goes_to_the_private_chat(bench: PushBench) -> None:
    async def redirect(thread: Thread) -> bool:
        if (home := await open_home(bench.store, None, "7", thread)) is None:
            return False
        again = Redirect(home, "it is `locked`", Final("42"))
        asked = gather_waits(bench.current).asked_in_private
        values = {"person": "7", "again": again, "thread": thread, "key": "gone:1", "now": 0.0, "asked": asked}
        await bench.store.run(partial(redirect_answer, **values))  # type: ignore[arg-type]  # its arguments
        return True

    assert not await redirect(GROUP), "their private chat is not known"
    await bench.prefer()
    assert not await redirect(DIRECT), "that is the chat that is gone"
    await bench.store.run(lambda execute: people.store_address(execute, replace(JANE, thread=TOPIC)))
    assert await redirect(TOPIC)
    [(thread, text, _mention)] = await bench.rows()
    assert thread == str(DIRECT)
    assert text == "I can't post where you asked me (`it is 'locked'`), so here is my answer:\n\n42"


@pytest.mark.parametrize(
    ("people_named", "thread", "text"),
    [
        ((), DIRECT, "Done after 1 s."),  # everybody's: who reads it is not known
        (("telegram/8", "telegram/7"), DIRECT, "“I was diagnosed”: Done after 1 s."),
        ((), GROUP, "“I was diagnosed”: Done after 1 s."),
    ],
)
async def test_the_words_of_a_direct_chat_go_only_to_a_target_that_names_the_person(
    bench: PushBench, people_named: tuple[str, ...], thread: Thread, text: str
) -> None:
    target = PushTarget("team", Secret(f"{bench.servers.base_url}/hook"), people=people_named)
    bench.allow(targets=(target,), private_addresses=True)
    plain = "Done after 1 s." if thread is DIRECT else ""
    await bench.route(replace(PING, thread=thread, text="“I was diagnosed”: Done after 1 s.", without_words=plain))
    [job] = await bench.claim()
    assert job.arguments["text"] == text
