"""Cursors: where the next page of a list begins, as a text that means nothing to its reader."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from bot.http.route import HttpProblem
from bot.http.spec import Query

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T", bound=tuple[Any, ...])
PAGE = 50
MAX_CHARS = 2000
MOST = 1 << 62  # greater than each number of a row
CURSOR = Query("cursor", "the `next` of the page before")
BAD_CURSOR = HttpProblem(400, "bad_cursor", "`cursor` is none.", "Send the `next` of the page before.")


def make_cursor(*values: float | str) -> str:
    """Return the cursor behind a row that these values place."""
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def read_cursor(request: web.Request, first: T) -> T:
    """Return the values of the cursor in the address, `first` where there is none. Raises HttpProblem."""
    text = request.query.get(CURSOR.name, "")
    if not text:
        return first
    try:
        values = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise BAD_CURSOR from None
    fits = isinstance(values, list) and len(values) == len(first) and len(text) <= MAX_CHARS
    if not fits or not all(map(_is_like, values, first)):
        raise BAD_CURSOR
    return tuple(values)  # type: ignore[return-value]  # compared one by one


def _is_like(value: object, example: object) -> bool:
    if isinstance(example, float):
        return type(value) in (int, float)
    return type(value) is type(example) and (not isinstance(value, int) or abs(value) <= MOST)
