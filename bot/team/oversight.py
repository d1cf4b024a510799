"""Show operators the audit (`/audit`), and the rules and grants in force (`/permissions`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from agent.messages import Thread
from agent.permissions.invisible import show_line
from agent.permissions.rules import Rule, Verdict
from bot.base.plain_text import without_formatting
from bot.commands.call import CommandCall
from bot.database import audit
from bot.database.audit import AuditKind
from bot.journey.questions import describe_grant
from bot.rights import deeds
from bot.rights.audit_reading import KINDS, MAX_READ_ROWS, aliases_of, newest_events, readable_places
from bot.rights.deeds import Deed
from bot.rights.permissions import is_in_force, rules_in_force
from bot.storage import calls, people
from bot.storage.calls import GrantRow
from bot.team.roles_commands import HERE, find_target
from catalogue import N_, _, list_items
from channels.shared.texts import shorten

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


MAX_CALL_CHARS = 120
RULE_LINES: dict[Verdict, str] = {
    "deny": N_("Never runs: {rules}"),
    "ask": N_("I ask first: {rules}"),
    "allow": N_("Runs without asking: {rules}"),
}
IN_THIS_CHAT, EVERYWHERE = (
    N_("{number}: {call}, in this conversation, by {name}"),
    N_("{number}: {call}, everywhere, by {name}"),
)


def permissions_command(call: CommandCall) -> str:
    """Show what is in force, or revoke a grant: of this conversation, or as an operator any other."""
    word, _space, number = call.words.partition(" ")
    rows = calls.list_grants(call.execute, call.conversation)
    if word.lower() != "revoke":
        return _describe_permissions(call, rows)
    row = next((each for each in rows if str(each.id) == number.strip(" #")), None)
    if row is None:
        command = command_hint("permissions")
        return _("There is no such permission here. `{command}` lists them with their numbers.", command=command)
    deed = _revoking(call, row)
    if not call.may(deed):
        return call.refuse("permissions revoke", deed)
    calls.revoke_grant(call.execute, row.id)
    call.record(AuditKind.GRANT_REVOKED, describe_grant(row.tool, row.subject))
    return _("Revoked. From now on I ask before {call}.", call=_describe_call(row))


def _revoking(call: CommandCall, row: GrantRow) -> Deed:
    """Return what taking back this grant is: everybody may take back what they gave themselves."""
    if (row.channel, row.person) == (call.thread.channel, call.message.author.id):
        return deeds.REVOKE_OWN_GRANT
    return deeds.ALLOW_EVERYWHERE if row.conversation == calls.EVERYWHERE else deeds.REVOKE_GRANT


def _describe_permissions(call: CommandCall, rows: Sequence[GrantRow]) -> str:
    rules = rules_in_force(call.current.config)
    lines = [
        f"- {_(line, rules=list_items(map(_describe_rule, kind)))}"
        for verdict, line in RULE_LINES.items()
        if (kind := [rule for rule in rules if rule.verdict == verdict])
    ]
    otherwise = _("Otherwise I ask before tools that act outside of my sandbox.")
    given: list[str] = []
    if rows := [row for row in rows if is_in_force(call.execute, call.current.access, row)]:
        revoke = command_hint(f"permissions revoke {rows[0].id}")
        given = ["", _("Allowed by people (`{command}` takes one back):", command=revoke), *map(_describe_grant, rows)]
    return "\n".join([_("Rules, the first that matches decides:"), *lines, f"- {otherwise}", *given])


def _describe_rule(rule: Rule) -> str:
    return show_line(shorten(str(rule), MAX_CALL_CHARS))


def _describe_grant(row: GrantRow) -> str:
    text = EVERYWHERE if row.conversation == calls.EVERYWHERE else IN_THIS_CHAT
    return f"- {_(text, number=row.id, call=_describe_call(row), name=row.name or row.person)}"


def _describe_call(row: GrantRow) -> str:
    return show_line(shorten(f"{row.tool}({row.subject})" if row.subject else row.tool, MAX_CALL_CHARS))
