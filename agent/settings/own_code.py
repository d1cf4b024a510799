"""Make what an entry of the configuration names by `use:`; its faults are those of the entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.near_misses import DID_YOU_MEAN, closest_name, suggest_lazily
from agent.settings.models import AgentConfigError
from catalogue import N_, LazyText
from sandbox.named_code import NamedCodeError, call_code, find_code

NAME_CODE = N_("name it as in docs/extend.md; the module may be beside the configuration")


def find_own(use: str, at: tuple[str | int, ...]) -> Any:
    """Return what `package.module:name` means. Raises AgentConfigError."""
    try:
        return find_code(use)
    except NamedCodeError as error:
        raise config_error(error, at) from None


def call_own(use: str, found: Any, at: tuple[str | int, ...], *arguments: Any, options: Mapping[str, Any]) -> Any:
    """Return what the function or class makes. Raises AgentConfigError."""
    try:
        return call_code(use, found, *arguments, options=options)
    except NamedCodeError as error:
        raise config_error(error, at) from None


def config_error(error: NamedCodeError, at: tuple[str | int, ...]) -> AgentConfigError:
    """Return the fault of the entry at `at`."""
    return AgentConfigError((*at, *error.place), error.wrong, fix_of(error))


def fix_of(error: NamedCodeError) -> LazyText | str:
    """Return the name that was meant, or how code is named."""
    if near := closest_name(error.written, error.known) if error.written else "":
        return LazyText(DID_YOU_MEAN, name=near)
    if error.place == ("options",):
        return LazyText(N_("add it below `options`"))
    if error.place[0] == "use" and not error.is_name:
        return LazyText(N_("mend that code, or remove the entry"))
    if error.place[0] == "options":
        return suggest_lazily(error.written, error.known) or LazyText(N_("docs/extend.md says what it gets"))
    return LazyText(NAME_CODE)
