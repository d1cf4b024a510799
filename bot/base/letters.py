"""Spell what processes that share the database send each other (`Database.send`), and read it."""

from __future__ import annotations

from typing import Any

import orjson

from agent.stored_json import Damaged, raise_damaged

Json = dict[str, Any]


def dump_letter(kind: str, **content: object) -> str:
    """Return a letter of this kind."""
    return orjson.dumps({"kind": kind, **content}).decode()


def load_letter(text: str) -> Json:
    """Return the content of a letter. Raises Damaged."""
    with raise_damaged():
        found = orjson.loads(text)
    if not isinstance(found, dict):
        raise Damaged("a letter is no object")
    return found
