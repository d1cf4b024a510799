"""Read what a body says. Everything else in it is refused."""

from __future__ import annotations

from typing import Any

from bot.http.route import HttpProblem


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
