"""Read what a delivery says, whoever sent it: data, never authority.

A body is JSON of at most MAX_BODY_BYTES of its settings; orjson refuses one nested more than 1,024 deep. Only known
fields are read, each bounded, so that the work does not grow with what a sender makes up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent.stored_json import build_dataclass, raise_damaged
from bot.config.hooks import HookConfig
from bot.hooks import senders
from bot.hooks.fields import Body, at, text_at

MAX_SUBJECT_CHARS = 300
MAX_TEXT_CHARS = 4_000  # of a body that is no JSON

State = Literal["firing", "resolved", "info"]


class BadBody(Exception):
    """A body that cannot be read. Its text says why."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One delivery. Deliveries with the same `subject` go on in one thread. `kind` is the sender's name of it."""

    sender: str
    kind: str
    subject: str
    items: tuple[senders.Item, ...]
    ignored: bool = False  # it asks for nothing, such as a ping

    def dump(self) -> bytes:
        """Return JSON for storage."""
        return orjson.dumps(self)

    @classmethod
    def load(cls, data: bytes) -> HookEvent:
        """Load what `dump` returned, even in a newer version. Raises Damaged."""
        with raise_damaged():
            raw: dict[str, Any] = orjson.loads(data)
            items = (build_dataclass(senders.Item, each, links=_pairs(each["links"])) for each in raw["items"])
            return build_dataclass(cls, raw, items=tuple(items))

    @property
    def is_resolved(self) -> bool:
        """Whether nothing of it needs work any more."""
        return bool(self.items) and all(item.state == "resolved" for item in self.items)


def read_event(hook: HookConfig, headers: Mapping[str, str], body: bytes) -> HookEvent:
    """Return what a delivery says. Raises BadBody."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if headers.get("content-type", "").partition(";")[0].strip() == "text/plain":
            content = {"title": body[:MAX_TEXT_CHARS].decode("utf-8", "replace")}
        else:
            raise BadBody(str(error)) from error
    if not isinstance(content, dict):
        raise BadBody("not a JSON object")
    read = _reader_of(headers, content)
    found = read(headers, content)
    subject = _chosen_subject(hook.group_by, content) or found.subject or found.kind or found.sender
    wanted = not hook.events or found.kind in hook.events or found.kind.partition(".")[0] in hook.events
    return HookEvent(found.sender, found.kind, subject[:MAX_SUBJECT_CHARS], found.items, not found.items or not wanted)


def _pairs(links: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, link) for name, link in links)


def _reader_of(headers: Mapping[str, str], content: Body) -> Callable[[Mapping[str, str], Body], senders.Found]:
    if "x-github-event" in headers:
        return senders.read_github
    if "x-gitlab-event" in headers:
        return senders.read_gitlab
    if "sentry-hook-resource" in headers:
        return senders.read_sentry
    if isinstance(content.get("alerts"), list) and "groupKey" in content:
        return senders.read_grafana if "orgId" in content else senders.read_alertmanager
    return senders.read_script


def _chosen_subject(places: Sequence[str], content: Body) -> str:
    """Return the values at the places that the operator named; "" where none is there."""
    values: list[Any] = [at(content, *place.split(".")) for place in places]
    known = [text_at({"value": value}, "value") for value in values]
    return " · ".join(known) if any(known) else ""
