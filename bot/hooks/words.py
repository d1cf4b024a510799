"""Say what other systems reported: to people in a few lines, to the agent in full within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.base.plain_text import without_formatting
from bot.hooks.events import HookEvent
from bot.hooks.senders import Item
from catalogue import _, join_sentences, ngettext
from channels.shared.texts import shorten

MARKS = {"firing": "🔴", "resolved": "✅", "info": "🔹"}
MAX_LINES = 20  # of a post
MAX_TITLE_CHARS = 200
MAX_REPORT_CHARS = 40_000  # of what the agent gets


def items_of(events: Sequence[HookEvent]) -> list[Item]:
    """Return the items of deliveries, in order."""
    return [item for event in events for item in event.items]


def title_of(hook: str, items: Sequence[Item]) -> str:
    """Return the title of a conversation that begins with these items: the hook, the first item, how many more."""
    first = shorten(without_formatting(items[0].title), MAX_TITLE_CHARS) or "-"
    more = f" +{len(items) - 1}" if len(items) > 1 else ""
    return f"{hook}: {first}{more}"


def describe_post(hook: str, items: Sequence[Item], why: str = "") -> str:
    """Return the lines that people read, with the sentence `why` at the end."""
    lines = [_("🔔 Hook “{title}”", title=hook), *map(_describe_line, items[:MAX_LINES])]
    if rest := len(items) - MAX_LINES:
        lines += [ngettext("…and {n} more.", "…and {n} more.", rest)] if rest > 0 else []
    return "\n".join([*lines, *([join_sentences(why)] if why else [])])


def _describe_line(item: Item) -> str:
    title = shorten(without_formatting(item.title), MAX_TITLE_CHARS)
    severity = f" **{shorten(without_formatting(item.severity), 40)}**" if without_formatting(item.severity) else ""
    links = "".join(f" · [{_(name)}]({link})" for name, link in item.links)
    return f"{MARKS[item.state]}{severity} {title}{links}"


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
        yield f"  {shorten(item.text, 1_000)}"
    yield from (f"  {name}: {link}" for name, link in item.links)
