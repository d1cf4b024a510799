"""Environment variables by which libraries send people's words elsewhere, or write them to the log, unasked.

They are removed from the environment of the process unless `library_switches` names them: the configuration decides
where words go, not what another program needed.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from agent.near_misses import suggest
from bot.config.document import Document
from catalogue import N_, _

_TRACES = N_("it sends every request and answer to a tracing service")
_REDIRECTS = N_("it sends requests to another server, or adds to them")
_LOGS = N_("it writes requests and answers to the log")
SWITCHES: Mapping[str, str] = {
    **{f"{maker}_{name}": _TRACES for maker in ("LANGSMITH", "LANGCHAIN") for name in ("TRACING", "TRACING_V2")},
    **{f"{maker}_{name}": _TRACES for maker in ("LANGSMITH", "LANGCHAIN") for name in ("OTEL_ENABLED", "OTEL_ONLY")},
    "LANGCHAIN_HANDLER": _TRACES,
    "OPENAI_API_BASE": _REDIRECTS,
    "OPENAI_PROXY": _REDIRECTS,
    "OPENAI_CUSTOM_HEADERS": _REDIRECTS,
    "ANTHROPIC_BASE_URL": _REDIRECTS,
    "ANTHROPIC_API_URL": _REDIRECTS,
    "ANTHROPIC_PROXY": _REDIRECTS,
    "ANTHROPIC_CUSTOM_HEADERS": _REDIRECTS,
    "OPENAI_LOG": _LOGS,
    "ANTHROPIC_LOG": _LOGS,
}
"""Variable → what it does."""
_OFF = ("", "0", "false", "no", "off")


def check_switches(document: Document, names: Any) -> None:
    """Note names that are no such variable."""
    for i, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str) and name not in SWITCHES:
            document.fault(("library_switches", i), _("is not a variable that I know"), suggest(name, SWITCHES))


def active_switches(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switches that are on in an environment."""
    return tuple(name for name in SWITCHES if environ.get(name, "").strip().lower() not in _OFF)


def remove_switches(environ: MutableMapping[str, str], allowed: Sequence[str]) -> None:
    """Remove every switch that is not allowed: some have an effect even when they say "false"."""
    for name in SWITCHES.keys() - {*allowed}:
        environ.pop(name, None)
