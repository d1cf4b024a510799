"""Read what a delivery says, whoever sent it: data, never authority.

A body is JSON of at most MAX_BODY_BYTES of its settings; orjson refuses one nested more than 1,024 deep. Only known
fields are read, each bounded, so that the work does not grow with what a sender makes up.

Say what other systems reported: to people in a few lines, to the agent in full within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from agent.stored_json import build_dataclass, raise_damaged
from bot.base.plain_text import without_formatting
from bot.config.hooks import HookConfig
from bot.hooks import senders
from bot.hooks.senders import Body, Item, at, text_at
from catalogue import _, join_sentences, ngettext
from channels.shared.texts import shorten

MAX_SUBJECT_CHARS = 300
MAX_BODY_CHARS = 4_000  # of a body that is no JSON, or whose shape is not known

PINGS = re.compile(r"ping$|installation\b")  # kinds that ask for nothing: GitHub's, and Sentry's of a set-up
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
            content = {"title": body[:MAX_BODY_CHARS].decode("utf-8", "replace")}
        else:
            raise BadBody(str(error)) from error
    if not isinstance(content, dict):
        raise BadBody("not a JSON object")
    if not content:
        raise BadBody("an empty object")
    read = _reader_of(headers, content)
    found = read(headers, content)
    if not found.items and not PINGS.match(found.kind):
        found = replace(found, items=(_unread(found.kind, content),))
    subject = _chosen_subject(hook.group_by, content) or found.subject or found.kind or found.sender
    wanted = not hook.events or found.kind in hook.events or found.kind.partition(".")[0] in hook.events
    return HookEvent(found.sender, found.kind, subject[:MAX_SUBJECT_CHARS], found.items, not found.items or not wanted)


def _unread(kind: str, content: Body) -> senders.Item:
    """Return an item for a body of a shape that is not known: its beginning, as it came."""
    raw = orjson.dumps(content).decode()
    return senders.Item(shorten(f"{kind}: {raw}" if kind else raw, MAX_TITLE_CHARS), text=shorten(raw, MAX_BODY_CHARS))


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


MARKS = {"firing": "🔴", "resolved": "✅", "info": "🔹"}
MAX_LINES = 20  # of a post
MAX_TITLE_CHARS = 200
MAX_TEXT_CHARS = 1_000  # of the text of an item
MAX_REPORT_CHARS = 40_000  # of what the agent gets


def items_of(events: Sequence[HookEvent]) -> list[Item]:
    """Return the items of deliveries, in order."""
    return [item for event in events for item in event.items]


def title_of(hook: str, items: Sequence[Item]) -> str:
    """Return the title of a conversation that begins with these items: the hook, the first item, how many more."""
    first = shorten(without_formatting(items[0].title), MAX_TITLE_CHARS) or "-"
    more = f" +{len(items) - 1}" if len(items) > 1 else ""
    return f"{hook}: {first}{more}"


def describe_post(hook: str, items: Sequence[Item], why: str = "", *, whole: bool = False) -> str:
    """Return the lines that people read, with the sentence `why` at the end; `whole`: with the texts of the items."""
    lines = [_("🔔 Hook “{title}”", title=hook)]
    for item in items[:MAX_LINES]:
        lines += [_describe_line(item), *(_describe_text(item) if whole else ())]
    if rest := len(items) - MAX_LINES:
        lines += [ngettext("…and {n} more.", "…and {n} more.", rest)] if rest > 0 else []
    return "\n".join([*lines, *([join_sentences(why)] if why else [])])


def _describe_line(item: Item) -> str:
    title = shorten(without_formatting(item.title), MAX_TITLE_CHARS)
    severity = f" **{shorten(without_formatting(item.severity), 40)}**" if without_formatting(item.severity) else ""
    links = "".join(f" · [{_(name)}]({link})" for name, link in item.links)
    return f"{MARKS[item.state]}{severity} {title}{links}"


def _describe_text(item: Item) -> Iterator[str]:
    if text := without_formatting(item.text):
        yield f"> {shorten(text, MAX_TEXT_CHARS)}"


def report(items: Sequence[Item]) -> str:
    """Return what the agent gets, in English, within bounds."""
    lines, chars = list[str](), 0
    for number, item in enumerate(items):
        text = "\n".join(_report_lines(item))
        chars += len(text)
        if lines and chars > MAX_REPORT_CHARS:
            lines.append(f"[{len(items) - number} more items do not fit here]")
            break
        lines.append(text)
    return "\n".join(lines)


def _report_lines(item: Item) -> Iterator[str]:
    severity = f", {shorten(item.severity, 40)}" if item.severity else ""
    yield f"- {item.state}{severity}: {shorten(item.title, MAX_TITLE_CHARS)}"
    if item.text:
        yield f"  {shorten(item.text, MAX_TEXT_CHARS)}"
    yield from (f"  {name}: {link}" for name, link in item.links)
