"""Add the HTTP API as a feature: keys, the routes under `/v1`, and the page with its cookie."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from agent.messages import Thread
from bot.base.background import Effect, JobKind
from bot.base.stored_files import WebFiles
from bot.commands.feature import Door, Feature, Parts, Service
from bot.http.route import Route
from bot.storage import web
from bot.storage.jobs import BackgroundJob
from bot.storage.personal import API

SWEEP_JOB, SWEEP_SECONDS = "web_files", 3600.0


def _routes(door: Door) -> Sequence[Route]:
    from bot.api.endpoints import Endpoints, EventEndpoints
    from bot.api.langgraph.endpoints import LangGraphEndpoints
    from bot.api.langgraph.protocol import ProtocolEndpoints
    from bot.api.langgraph.store import StoreEndpoints
    from bot.api.openapi import OpenApi
    from bot.api.operate.changes import OperateChanges
    from bot.api.operate.endpoints import OperateEndpoints
    from bot.api.own.endpoints import OwnEndpoints
    from bot.api.own.threads import ThreadChanges
    from bot.api.page.endpoints import PageEndpoints
    from bot.api.page.opened import opened_to_page
    from bot.api.page.operate import OperatePage
    from bot.api.page.shared_threads import DownloadEndpoints, SharedThreads
    from bot.api.page.sign_ins import SignIns
    from bot.api.page.thread_endpoints import ThreadEndpoints
    from bot.api.shared.event_hub import EventHub
    from bot.api.shared.file_endpoints import FileEndpoints
    from bot.api.shared.run_reader import RecentRuns

    files, hub = WebFiles(door.current.config.data_dir), EventHub(door)
    parts = (
        Endpoints(door, files),
        EventEndpoints(door, hub),
        FileEndpoints(door, files),
        LangGraphEndpoints(door, hub),
        ProtocolEndpoints(door, hub, RecentRuns(door.runs)),
        StoreEndpoints(door),
        OperateEndpoints(door),
        OperateChanges(door),
        OwnEndpoints(door),
        ThreadChanges(door),
    )
    routes = [route for part in parts for route in part.routes()]
    mine = opened_to_page(routes)
    page = (
        PageEndpoints(door),
        ThreadEndpoints(door),
        DownloadEndpoints(door, files),
        OperatePage(door),
        SharedThreads(door, files),
        SignIns(door),
    )
    return [*routes, *OpenApi(routes).routes(), *mine, *(route for part in page for route in part.routes())]


def _start(service: Service) -> Parts:
    files = WebFiles(service.current.config.data_dir)

    async def sweep(_job: BackgroundJob) -> None:
        await files.sweep(service.store)

    async def end_unused(job: BackgroundJob) -> Effect:
        return partial(web.end_unused, thread=Thread.parse(job.arguments["thread"]), now=time.time())

    return Parts({SWEEP_JOB: JobKind(sweep, SWEEP_SECONDS), web.STATELESS_JOB: JobKind(end_unused)})


async def _greet(door: Door) -> str:
    from bot.api.page.greeting import greet

    return await greet(door)


FEATURE = Feature("api", personal=API, routes=_routes, greet=_greet, start=_start)
