"""Parse requests: bodies, cursors of pages, and what a path names."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from bot.api.shared.read_models import not_found
from bot.database.rows import parse_row_id
from bot.http.route import HttpProblem, Query

if TYPE_CHECKING:
    from aiohttp import web


def text_field(body: Any, name: str) -> str:
    """Return the only field of a body. Raises HttpProblem."""
    fix = f'Send {{"{name}": "…"}} and nothing else.'
    if not isinstance(body, dict) or {*body} != {name} or not isinstance(body[name], str):
        raise HttpProblem(422, "bad_body", f"The body is not an object with the text `{name}`.", fix)
    return checked_text(body[name], name)


def checked_text(text: str, name: str) -> str:
    """Return a text that a person may have written. Raises HttpProblem."""
    if not text.strip() or "\0" in text:
        raise HttpProblem(422, "empty_text", f"`{name}` is empty, or has a NUL character.", "Write something.")
    return text


T = TypeVar("T", bound=tuple[Any, ...])
PAGE = 50
MAX_CHARS = 2000
MOST = 1 << 62  # greater than each number of a row
CURSOR = Query(
    "cursor", "the `next` of the page before", bounds={"pattern": r"^[A-Za-z0-9_-]*$", "maxLength": MAX_CHARS}
)
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
