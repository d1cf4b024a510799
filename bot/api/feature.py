"""The HTTP API: keys that act for people, and the routes under `/v1`."""

from __future__ import annotations

from collections.abc import Sequence

from bot.feature import Door, Feature, Parts, Service
from bot.http.route import Route
from bot.service.jobs import JobKind
from bot.service.web_files import WebFiles
from bot.storage.jobs import BackgroundJob
from bot.storage.personal import API

SWEEP_JOB, SWEEP_SECONDS = "web_files", 3600.0


def _routes(door: Door) -> Sequence[Route]:
    from bot.api.endpoints import Endpoints
    from bot.api.event_endpoints import EventEndpoints
    from bot.api.event_hub import EventHub
    from bot.api.file_endpoints import FileEndpoints
    from bot.api.langgraph.endpoints import LangGraphEndpoints

    files, hub = WebFiles(door.current.config.data_dir), EventHub(door)
    parts = (
        Endpoints(door, files),
        EventEndpoints(door, hub),
        FileEndpoints(door, files),
        LangGraphEndpoints(door, hub),
    )
    return [route for part in parts for route in part.routes()]


def _start(service: Service) -> Parts:
    files = WebFiles(service.current.config.data_dir)

    async def sweep(_job: BackgroundJob) -> None:
        await files.sweep(service.store)

    return Parts({SWEEP_JOB: JobKind(sweep, SWEEP_SECONDS)})


FEATURE = Feature("api", personal=API, routes=_routes, start=_start)
