"""Watches: a model works only when the text of a page has changed; a page that cannot be read is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.blocks import Final
from agent.parsing.child import ParserProcess
from agent.permissions.rules import RuleText
from agent.settings.sections import PermissionConfig
from agent.web.fetcher import WebFetcher
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database.database import Database
from bot.rights.current import Current
from bot.schedules.firing import fire_due
from bot.schedules.watches import MAX_FAILURES, WatchJobs
from bot.storage import jobs
from bot.storage.inbox import open_rows
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.schedule_rows import add_schedule
from tests.support.web_server import ARTICLE, ClonedResponse, WebSite, serve_site

NOON, HOUR = 1_800_000_000.0, 3600.0


class WatchBench:
    """A watch of a page, whose checks run in turn."""

    def __init__(self, store: Database, site: WebSite, *, open: bool = True) -> None:
        self.store = store
        self.site = site
        self.current = Current(Config(channels=(ChannelConfig("telegram", None, AccessConfig(open=open)),)))
        self.current.fetcher = site.fetcher(obeys_robots=False)
        self.checks = WatchJobs(store, self.current)
        self.hours = 0

    def show(self, otters: int, status: int = 200) -> None:
        text = ARTICLE.replace("412", str(otters))

        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=text, content_type="text/html", status=status)

        self.site.pages["/otters"] = answer

    async def add(self) -> None:
        values = {"kind": "watch", "url": self.site.url("/otters"), "what": "Tell me how many otters there are"}
        await self.store.run(lambda execute: add_schedule(execute, NOON, **values))

    async def fire(self) -> None:
        """Let an hour pass, and run the job of the fire."""
        self.hours += 1
        now = NOON + self.hours * HOUR
        access = self.current.access
        await self.store.run(lambda execute: fire_due(execute, access, now, HOUR))
        [job] = await self.store.run(lambda execute: jobs.claim_jobs(execute, "p", now, 5))
        effect = await self.checks.check(job)
        assert effect
        await self.store.run(effect)
        await self.store.run(lambda execute: jobs.finish_job(execute, job))

    async def rows(self, sql: str) -> list[Any]:
        return [row[0] for row in await self.store.run(lambda execute: execute(sql, {}))]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[WatchBench]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store, serve_site() as site:
        yield WatchBench(store, site)


RESULTS = "SELECT result FROM schedule_fires ORDER BY due"


async def test_only_a_change_of_the_text_begins_a_run_which_gets_the_difference(bench: WatchBench) -> None:
    await bench.add()
    for otters in (412, 412, 500):
        bench.show(otters)
        await bench.fire()
    assert await bench.rows(RESULTS) == ["unchanged", "unchanged", "run"]
    [row] = await bench.store.run(lambda execute: open_rows(execute, "schedule:1"))
    [quote] = row.message.quotes
    assert row.message.author.id == "7"
    assert "-In 2025 rangers counted 412" in quote.text
    assert "+In 2025 rangers counted 500" in quote.text


async def test_a_page_that_cannot_be_read_is_checked_again_and_then_paused_and_said(bench: WatchBench) -> None:
    await bench.add()
    bench.show(412)
    await bench.fire()
    bench.show(412, status=503)
    for _ in range(MAX_FAILURES):
        assert await bench.rows("SELECT state FROM schedules") == ["active"]
        await bench.fire()
    assert await bench.rows("SELECT state FROM schedules") == ["paused"]
    [payload] = await bench.rows("SELECT payload FROM outbox")
    assert b"I could not read its page 5 times in a row" in payload
    assert await bench.rows("SELECT 1 FROM inbox") == []


async def test_a_page_that_the_rules_forbid_now_is_not_read(bench: WatchBench) -> None:
    bench.show(412)
    await bench.add()
    denied = PermissionConfig(deny=(RuleText("web_fetch"),))
    bench.current.config = replace(bench.current.config, permissions=denied)
    await bench.fire()
    assert await bench.rows("SELECT state FROM schedules") == ["paused"]
    assert bench.site.requests == []


@pytest.mark.parametrize("charset", ["unicode_escape", "utf-7", "raw_unicode_escape"])
async def test_a_watched_page_in_an_odd_charset_is_read(bench: WatchBench, charset: str) -> None:
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    bench.site.pages["/otters"] = ClonedResponse(body=b"\\ud800 +2AA- otters", headers=headers)
    await bench.add()
    await bench.fire()
    assert await bench.rows(RESULTS) == ["unchanged"]
    assert await bench.rows("SELECT seen FROM schedules") == ["\\ud800 +2AA- otters"]


class BrokenParser(ParserProcess):
    """Fails as no parser should."""

    async def run(self, *_: object, **__: object) -> tuple[dict[str, Any], bytes]:
        raise RuntimeError("not foreseen")


async def test_the_owner_of_a_page_whose_reading_fails_inside_is_told(bench: WatchBench) -> None:
    bench.current.fetcher = WebFetcher(obeys_robots=False, guard=bench.site.guard(), parser=BrokenParser())
    bench.show(412)
    await bench.add()
    for _ in range(MAX_FAILURES):
        await bench.fire()
    assert set(await bench.rows(RESULTS)) == {"unreadable"}
    [payload] = await bench.rows("SELECT payload FROM outbox")
    assert "a fault inside Fawn" in Final.load(payload).text
