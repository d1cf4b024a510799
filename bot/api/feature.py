"""The HTTP API: keys that act for people, and the routes under `/v1`."""

from __future__ import annotations

from collections.abc import Sequence

from bot.feature import Door, Feature
from bot.http.route import Route
from bot.storage.personal import API


def _routes(door: Door) -> Sequence[Route]:
    from bot.api.endpoints import Endpoints
    from bot.api.event_endpoints import EventEndpoints

    return [*Endpoints(door).routes(), *EventEndpoints(door).routes()]


FEATURE = Feature("api", personal=API, routes=_routes)
