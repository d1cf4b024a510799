"""`/audit`: the newest entries of the audit, for operators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from agent.messages import Thread
from bot.base.plain_text import without_formatting
from bot.commands.call import CommandCall
from bot.database import audit
from bot.rights.audit_reading import KINDS, MAX_READ_ROWS, aliases_of, newest_events, readable_places
from bot.storage import people
from bot.team.roles_commands import HERE, find_target
from catalogue import N_, _

AUDIT_WORDS = "NUMBER | KIND | @PERSON | here"
SHOWN, MAX_SHOWN = 10, 50
DIGEST = re.compile(r"[0-9a-f]{64}")
ONLY_DIRECT = N_("Everybody here would read who did what. Ask me in our direct chat, or show it here with `{command}`.")


@dataclass(slots=True)
class _Wanted:
    """What the words of the command ask for."""

    count: int = SHOWN
    kind: str = ""  # a kind, or what comes before its dot
    person: str = ""
    here: bool = False


def audit_command(call: CommandCall) -> str:
    """Show entries of this workspace, the newest first; on the console, of everything.

    The entries say of people who are not here what they did. In a chat of several people, the words must ask for that.
    """
    wanted = _read_words(call)
    if wanted is None:
        return _usage()
    if not (call.message.private or wanted.here):
        return _(ONLY_DIRECT, command=command_hint(f"audit here {call.words}".strip()))
    rows = _find_rows(call, wanted)
    if not rows:
        return _("I found nothing in the newest {n} entries of the audit.", n=f"{MAX_READ_ROWS:,}")
    aliases = {str(event[field]) for event in rows for field in audit.NAMED_FIELDS if field in event}
    names = audit.find_names(call.execute, aliases)
    time_zone = call.current.config.time_zone
    zone = ZoneInfo(time_zone) if time_zone else None
    lines = [f"- {_describe(call, event, names, zone)}" for event in rows]
    return "\n".join([_("The newest entries of the audit:"), *lines])


def _usage() -> str:
    return _(
        "Use `{all}`, `{count}`, `{kind}` or `{person}`. The kinds are in docs/operations.md; `{part}` means all of"
        " tools.",
        all=command_hint("audit"),
        count=command_hint("audit 30"),
        kind=command_hint("audit access.denied"),
        person=command_hint("audit @PERSON"),
        part=command_hint("audit tool"),
    )


def _read_words(call: CommandCall) -> _Wanted | None:
    wanted = _Wanted()
    for word in call.words.split():
        if word.lower() == HERE:
            wanted.here = True
        elif word.isascii() and word.isdigit() and len(word) <= 3:  # ids of people are longer
            wanted.count = min(MAX_SHOWN, int(word))
        elif word.lower() in KINDS:
            wanted.kind = word.lower()
        elif (target := find_target(call, word)) and target.person and not wanted.person:
            wanted.person = target.person
        else:
            return None
    return wanted


def _find_rows(call: CommandCall, wanted: _Wanted) -> list[dict[str, Any]]:
    """Return the events that are wanted, the newest first."""
    aliases = aliases_of(call.execute, call.thread.channel, wanted.person) if wanted.person else set()
    if wanted.person and not aliases:
        return []
    places = readable_places(call.execute, call.current.access, call.thread, call.message.author.id)
    page = newest_events(call.execute, places, wanted.count, kind=wanted.kind, person=aliases)
    return [event for _seq, event in page.events]


def _describe(call: CommandCall, event: dict[str, Any], names: dict[str, str], zone: ZoneInfo | None) -> str:
    at = datetime.fromtimestamp(event["at"] / 1000, zone)
    who = names.get(event.get("who", ""), event.get("who", "")[:8])
    channel, _colon, person = who.partition(":")
    known = people.find_person(call.execute, channel, person)
    name = without_formatting(known.name) if known and known.name else ""
    shown = f"{name} (`{person}`)" if name else f"`{person or who}`" if who else ""
    what = [f"{key}={value}" for key, value in event.get("what", {}).items() if not DIGEST.fullmatch(str(value))]
    deed = " ".join([event["kind"], *what]).replace("`", "'")
    result = f" → {event['result']}" if event.get("result") else ""
    where = names.get(event.get("where", ""), "")
    chat = f"`{Thread.parse(where).chat}`" if where else ""
    return " · ".join(filter(None, (f"{at:%Y-%m-%d %H:%M:%S}", shown, f"`{deed}{result}`", chat)))
