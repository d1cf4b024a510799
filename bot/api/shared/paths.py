"""Read what a path names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.api.shared.read_models import not_found
from bot.database.rows import parse_row_id
from bot.http.route import HttpProblem

if TYPE_CHECKING:
    from aiohttp import web

THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
BAD_THREAD = HttpProblem(
    *(400, "bad_thread", "This cannot be the id of a thread."),
    "Choose up to 64 letters, digits, - and _, such as a UUID.",
)


def path_thread(request: web.Request) -> str:
    """Return the id of the thread. Raises HttpProblem."""
    id = request.match_info["thread"]
    if not THREAD_ID.fullmatch(id):
        raise BAD_THREAD
    return id


def path_number(request: web.Request, what: str) -> int:
    """Return the number of a row. Raises HttpProblem."""
    text = request.match_info[what]
    number = parse_row_id(text) if text.isascii() else None
    if number is None:
        raise not_found(what)
    return number
