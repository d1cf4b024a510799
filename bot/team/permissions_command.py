"""The command `permissions`: show the rules and grants that are in force here, and revoke grants."""

from __future__ import annotations

from collections.abc import Sequence

from agent.blocks import command_hint
from agent.permissions.rules import Rule, Verdict
from bot.commands.call import CommandCall
from bot.database.audit import AuditKind
from bot.journey.questions import describe_grant
from bot.rights import deeds
from bot.rights.deeds import Deed
from bot.rights.permissions import is_in_force, rules_in_force
from bot.storage import grants
from bot.storage.grants import GrantRow
from catalogue import N_, _, list_items
from channels.shared.texts import shorten

MAX_CALL_CHARS = 120
RULE_LINES: dict[Verdict, str] = {
    "deny": N_("Never runs: {rules}"),
    "ask": N_("I ask first: {rules}"),
    "allow": N_("Runs without asking: {rules}"),
}
HERE, EVERYWHERE = (
    N_("{number}: {call}, in this conversation, by {name}"),
    N_("{number}: {call}, everywhere, by {name}"),
)


def permissions_command(call: CommandCall) -> str:
    """Show what is in force, or revoke a grant: of this conversation, or as an operator any other."""
    word, _space, number = call.words.partition(" ")
    rows = grants.list_grants(call.execute, call.conversation)
    if word.lower() != "revoke":
        return _describe_permissions(call, rows)
    row = next((each for each in rows if str(each.id) == number.strip(" #")), None)
    if row is None:
        command = command_hint("permissions")
        return _("There is no such permission here. `{command}` lists them with their numbers.", command=command)
    deed = _revoking(call, row)
    if not call.may(deed):
        return call.refuse("permissions revoke", deed)
    grants.revoke_grant(call.execute, row.id)
    call.record(AuditKind.GRANT_REVOKED, describe_grant(row.tool, row.subject))
    return _("Revoked. From now on I ask before {call}.", call=_describe_call(row))


def _revoking(call: CommandCall, row: GrantRow) -> Deed:
    """Return what taking back this grant is: everybody may take back what they gave themselves."""
    if (row.channel, row.person) == (call.thread.channel, call.message.author.id):
        return deeds.REVOKE_OWN_GRANT
    return deeds.ALLOW_EVERYWHERE if row.conversation == grants.EVERYWHERE else deeds.REVOKE_GRANT


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
    return f"`{_one_line(str(rule))}`"


def _describe_grant(row: GrantRow) -> str:
    text = EVERYWHERE if row.conversation == grants.EVERYWHERE else HERE
    return f"- {_(text, number=row.id, call=_describe_call(row), name=row.name or row.person)}"


def _describe_call(row: GrantRow) -> str:
    return f"`{_one_line(f'{row.tool}({row.subject})' if row.subject else row.tool)}`"


def _one_line(text: str) -> str:
    return shorten(text.replace("`", "'"), MAX_CALL_CHARS)
