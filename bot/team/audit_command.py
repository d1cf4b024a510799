"""`/audit`: the newest entries of the audit, for operators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from agent.messages import Thread
from bot.commands.call import CommandCall
from bot.rights.deeds import READ_AUDIT
from bot.service.plain_text import without_formatting
from bot.storage import audit, people
from bot.storage.audit import AuditKind
from bot.team.roles_commands import HERE, find_target
from catalogue import N_, _

AUDIT_WORDS = "NUMBER | KIND | @PERSON | here"
SHOWN, MAX_SHOWN = 10, 50
MAX_READ_ROWS = 5000  # 30 ms
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
    kinds = {*AuditKind, *(kind.partition(".")[0] for kind in AuditKind)}
    for word in call.words.split():
        if word.lower() == HERE:
            wanted.here = True
        elif word.isascii() and word.isdigit() and len(word) <= 3:  # ids of people are longer
            wanted.count = min(MAX_SHOWN, int(word))
        elif word.lower() in kinds:
            wanted.kind = word.lower()
        elif (target := find_target(call, word)) and target.person and not wanted.person:
            wanted.person = target.person
        else:
            return None
    return wanted


def _find_rows(call: CommandCall, wanted: _Wanted) -> list[dict[str, Any]]:
    """Return the events that are wanted, the newest first."""
    alias = ""
    if wanted.person:
        alias = audit.find_alias(call.execute, audit.person_name(call.thread.channel, wanted.person))
        if not alias:
            return []
    everywhere = call.thread.channel == "console"
    places = set() if everywhere else _places(call)
    found: list[dict[str, Any]] = []
    for row in audit.read_newest(call.execute, MAX_READ_ROWS):
        if len(found) == wanted.count:
            break
        event = row.event
        if alias and alias not in (event.get("who"), event.get("subject")):
            continue
        if wanted.kind not in ("", event["kind"], str(event["kind"]).partition(".")[0]):
            continue
        if everywhere or event.get("where") in places:
            found.append(event)
    return found


def _places(call: CommandCall) -> set[str]:
    """Return the pseudonyms of the places of which the author may read the audit."""
    access, channel = call.current.access, call.thread.channel
    workspaces = access.workspaces_where(call.execute, call.thread, call.message.author.id, READ_AUDIT)
    beginnings = [str(Thread(channel, workspace, "")).removesuffix("/") for workspace in workspaces]
    return set().union(*(audit.find_aliases(call.execute, each) for each in beginnings))


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
