"""Show text of people and models as it is: on one line, as code, without its formatting."""

from __future__ import annotations

import re

from channels.shared.texts import shorten

MAX_LINE_CHARS = 60  # of a title or a question in an answer


def plain_line(text: str) -> str:
    """Return the beginning of a text on one line."""
    return shorten(without_formatting(text), MAX_LINE_CHARS)


def without_formatting(text: str) -> str:
    """Return a text on one line, without characters that would format it: some do so only at its beginning."""
    without_tags = re.sub(r"<([^<>]*)>", r" \1 ", re.sub("[`*~]+", "", text))
    return " ".join(re.sub(r"[\[\]\\<]+", " ", without_tags).split()).lstrip("#>| ")


def code_block(text: str) -> str:
    """Return lines as a block of code in Markdown, which nothing in them ends."""
    return f"```\n{text.replace('```', 'ˋˋˋ')}\n```"
