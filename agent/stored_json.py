"""Load dataclasses from stored JSON, even if a newer version wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class Damaged(ValueError):
    """Stored JSON cannot be read."""


@contextmanager
def raise_damaged() -> Iterator[None]:
    """Raise every error in stored JSON as Damaged."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def build_dataclass(kind: type[T], raw: Mapping[str, Any], /, **more: Any) -> T:
    """Build a dataclass from JSON. Lists become tuples; unknown fields of a newer version are ignored."""
    names = _field_names(kind)  # type: ignore[arg-type]  # for mypy, a class of a variable kind has no hash
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items() if name in names}
    return kind(**known | more)


@cache
def _field_names(kind: type[Any]) -> frozenset[str]:
    return frozenset(each.name for each in fields(kind))
