"""List the routes of the API that the cookie of the page opens: those that its modules ask, and no other one.

Whatever could one day act in the name of a reader of the page, such as a fault in the markup of answers, gets no more.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.api.shared.sessions import for_page
from bot.http.route import Route

OPENED = frozenset(
    (
        "GET /v1/events",
        "GET /v1/threads",
        "DELETE /v1/threads/{thread}",
        "POST /v1/threads/{thread}/messages",
        "POST /v1/threads/{thread}/commands",
        "POST /v1/runs/{run}/stop",
        "POST /v1/questions/{question}/answer",
        "GET /v1/files/{file}",
        "GET /v1/memory",
        "DELETE /v1/memory/{memory}",
        "GET /v1/schedules",
        "POST /v1/schedules/{schedule}/pause",
        "POST /v1/schedules/{schedule}/resume",
        "POST /v1/schedules/{schedule}/run",
        "DELETE /v1/schedules/{schedule}",
        "GET /v1/tasks",
        "POST /v1/tasks/{task}/cancel",
        "POST /v1/tasks/{task}/retry",
        "GET /v1/usage",
        "POST /v1/operate/runs/{run}/stop",
        "POST /v1/operate/waiting/{number}/answer",
        "GET /v1/operate/dead",
        "POST /v1/operate/dead/{letter}/requeue",
        "DELETE /v1/operate/dead/{letter}",
        "GET /v1/operate/audit",
        "GET /v1/operate/audit/verify",
        "GET /v1/operate/schedules",
        "POST /v1/operate/schedules/{schedule}/pause",
        "POST /v1/operate/schedules/{schedule}/resume",
        "DELETE /v1/operate/schedules/{schedule}",
        "GET /v1/operate/tasks",
        "POST /v1/operate/tasks/{task}/cancel",
    )
)


def opened_to_page(routes: Sequence[Route]) -> list[Route]:
    """Return the routes of the API as the page asks them."""
    return [for_page(route) for route in routes if f"{route.method} {route.path}" in OPENED]
