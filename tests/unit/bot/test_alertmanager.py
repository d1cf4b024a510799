"""Alertmanager itself, as Debian ships it, posts to a server: what it sends is what `read_event` expects."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
from aiohttp import web

from agent.setting import Secret
from bot.base.signatures import check_signature
from bot.config.hooks import HookConfig
from bot.hooks.events import HookEvent, read_event
from tests.fakes import hook_payloads
from tests.support.alertmanager import alertmanager, needs_alertmanager

HOOK = HookConfig("slack:T1/C1", "@U7", Secret("token"), "bearer")
pytestmark = needs_alertmanager


async def test_what_alertmanager_posts_is_read(tmp_path: Path) -> None:
    """Three alerts that fire, and their end, under one group."""
    received = asyncio.Queue[tuple[HookEvent, dict[str, object], str]]()

    async def take(request: web.Request) -> web.Response:
        body, headers = await request.read(), {name.lower(): value for name, value in request.headers.items()}
        proof = check_signature(HOOK, headers, body, 0.0)
        received.put_nowait((read_event(HOOK, headers, body), json.loads(body), proof.id))
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/hooks/alerts", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert isinstance(site._server, asyncio.Server)
        hook = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/hooks/alerts"
        async with alertmanager(tmp_path, hook, "token") as address, aiohttp.ClientSession() as session:
            alerts = [
                {
                    "labels": {"alertname": "HighLatency", "instance": f"db{number}", "severity": "critical"},
                    "annotations": {"runbook_url": "https://runbooks.example/latency"},
                }
                for number in range(3)
            ]
            async with session.post(f"{address}/api/v2/alerts", json=alerts) as answer:
                assert answer.status == 200
            event, body, id = await asyncio.wait_for(received.get(), 60)
            assert (event.sender, event.kind, id) == ("Alertmanager", "firing", "")
            assert sorted(item.title for item in event.items) == [f"HighLatency (db{number})" for number in range(3)]
            assert {item.severity for item in event.items} == {"critical"}
            assert ("Runbook", "https://runbooks.example/latency") in event.items[0].links
            _headers, sample = hook_payloads.alertmanager()
            assert body.keys() == sample.keys()  # the sample is what it sends
            for alert in alerts:
                alert["endsAt"] = "2026-01-01T00:00:00Z"  # type: ignore[assignment]  # of another shape than labels
            async with session.post(f"{address}/api/v2/alerts", json=alerts) as answer:
                assert answer.status == 200
            ended, _body, _id = await asyncio.wait_for(received.get(), 60)
            assert (ended.is_resolved, ended.subject) == (True, event.subject)
    finally:
        await runner.cleanup()
