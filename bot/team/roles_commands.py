"""`/whoami`: a person's own role. `/access`: show, give and take roles."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from agent.blocks import command_hint
from agent.messages import Thread
from bot.base.plain_text import without_formatting
from bot.commands.call import CommandCall
from bot.config.addresses import chat_address, id_on, person_address
from bot.config.team import OWNER, Right, RoleConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.rights.access import Standing
from bot.rights.deeds import GIVE_ROLE
from bot.rights.known_people import MENTION, describe_links, is_possible_id, suggest_people
from bot.storage import people
from bot.storage.people import chat_subject, person_subject
from catalogue import N_, _, join_sentences, list_items

log = logging.getLogger(__name__)

HERE = "here"  # in place of a person: everybody in this chat who has no role of their own
ACCESS_WORDS = "grant ROLE @PERSON | revoke @PERSON"
RIGHT_NAMES = {
    Right.TALK: N_("have me work"),
    Right.NETWORK: N_("have my tools use the internet"),
    Right.APPROVE: N_("approve calls of your own requests"),
    Right.APPROVE_OTHERS: N_("approve calls for others"),
    Right.SCHEDULE: N_("have work done at set times"),
    Right.OPERATE: N_("act for others, such as stop their work"),
    Right.SKILLS: N_("install and change skills"),
    Right.ACCESS: N_("give and take roles"),
    Right.USAGE: N_("see everybody's usage"),
    Right.OWN: N_("keep your role whatever operators say"),
}


@dataclass(frozen=True, slots=True)
class _Target:
    """Whom a command is about: `person` is "" for this chat; `shown` is for answers."""

    subject: str
    person: str
    name: str
    shown: str
    is_mention: bool = False  # the platform wrote it


def whoami_command(call: CommandCall) -> str:
    """Say who the person is to the bot, which role they have here, where it comes from, and what it lets them do."""
    author, place = call.message.author, call.thread
    standing = call.current.access.standing_of(call.execute, place, author.id)
    own = person_address(place.channel, author.id)
    chat = chat_address(place)
    lines = [
        _("You are {name} (`{id}`), and this chat is `{chat}`.", name=_plain(author.name), id=own, chat=chat),
        join_sentences(_("Your role here is **{role}**.", role=standing.role.name), _source(standing)),
        *_describe_role(standing.role),
    ]
    if call.message.private and (links := describe_links(call.execute, place.channel, author.id)):
        lines.append(links)
    return "\n".join(lines)


def _source(standing: Standing) -> str:
    values = {"setting": standing.setting, "by": _plain(standing.by), "command": command_hint("access")}
    return _(standing.source, **values)


def _describe_role(role: RoleConfig) -> list[str]:
    rights = [_(name) for right, name in RIGHT_NAMES.items() if right in role.rights]
    lines = [_("You may {rights}.", rights=list_items(rights)) if rights else _("You may only read along.")]
    for sentence, names in (
        (N_("Models that may answer you: {names}."), role.models),
        (N_("Agents that may answer you: {names}."), role.agents),
        (N_("Skills that you may use: {names}."), role.skills),
        (N_("Never runs for you: {names}."), role.deny),
        (N_("Needs approval for you: {names}."), role.ask),
    ):
        if names:
            lines.append(_(sentence, names=list_items(f"`{name}`" for name in names)))
    return lines


def access_command(call: CommandCall) -> str:
    """Show the roles, or have an operator give or take one."""
    match call.words.split():
        case []:
            return _show_roles(call)
        case ["grant", role, person]:
            return _grant_role(call, role.lower(), person)
        case ["revoke", person]:
            return _revoke_role(call, person)
    return _usage()


def _usage() -> str:
    return _(
        "Use `{show}`, `{grant}` or `{revoke}`. In place of a person, `here` means everybody in this chat.",
        show=command_hint("access"),
        grant=command_hint("access grant ROLE @PERSON"),
        revoke=command_hint("access revoke @PERSON"),
    )


def _show_roles(call: CommandCall) -> str:
    channel, access = call.thread.channel, call.current.access
    rules, rows = access.rules_for(channel), people.list_roles(call.execute)
    configured = [(id, entry.role) for entry in rules.roles for id in entry.who]
    configured += [(id, "operator") for id in rules.operators]
    if not call.may(GIVE_ROLE):  # whose role reaches this chat only sees the roles of this chat
        chat = call.thread.chat
        configured = [(id, role) for id, role in configured if chat in (id, id.rpartition("/")[0])]
        rows = [row for row in rows if row.subject == chat_subject(chat)]
    lines = [_("- `{who}`: **{role}**, by the configuration", who=id, role=role) for id, role in configured]
    lines += [
        _("- {name} (`{who}`): **{role}**, by {giver}", name=_plain(row.name), who=row.shown, role=row.role, giver=by)
        if row.name
        else _("- `{who}`: **{role}**, by {giver}", who=row.shown, role=row.role, giver=by)
        for row in rows
        if row.channel == channel
        for by in [_plain(row.giver_name or row.giver)]
    ]
    default = _("Everybody else who may talk to me is **{role}**.", role=access.team.default_role)
    roles = _("Roles: {roles}.", roles=list_items(f"**{name}**" for name in access.roles))
    return "\n".join([roles, *lines, default, "", _usage()])


def _place_of_others(call: CommandCall) -> Thread:
    """Return where the role of another person is looked up: a private chat is only its own person's place."""
    return replace(call.thread, chat="", topic="") if call.message.private else call.thread


def find_target(call: CommandCall, word: str) -> _Target | None:
    """Return whom a word of a command names: a mention, an id, or `here`; None for what is none of them."""
    if word == HERE:
        return _Target(chat_subject(call.thread.chat), "", "", _("this chat"))
    found = MENTION.fullmatch(id_on(call.thread.channel, word))
    if not found:
        return None
    id = found["id"] or found["plain"]
    known = people.find_person(call.execute, call.thread.channel, id)
    name = found["name"] or (known.name if known else "")
    shown = f"{_plain(name)} (`{id}`)" if name else f"`{id}`"
    return _Target(person_subject(call.thread.workspace, id), id, name, shown, bool(found["id"]))


def _grant_role(call: CommandCall, name: str, word: str) -> str:
    access, target = call.current.access, find_target(call, word)
    if name not in access.roles:
        known = list_items(f"**{each}**" for each in access.roles)
        return _("There is no role `{name}`. The roles are {roles}.", name=name, roles=known)
    if target is None:
        return _usage()
    role = access.roles[name]
    if unknown := _refuse_unknown(call, target):
        return unknown
    refusal = _refuse_here_only(call, target) or _refuse_role(call, target, role) or _refuse_change(call, target, role)
    if refusal:
        return _refused(call, refusal)
    by = call.message.author
    people.store_role(call.execute, call.thread, target.subject, name, name=target.name, by=by, now=call.now)
    _record_change(call, target, name)
    if not target.person:
        return _("Everybody in this chat without a role of their own is **{role}** from now on.", role=name)
    return _("{person} is **{role}** from now on.", person=target.shown, role=name)


def _revoke_role(call: CommandCall, word: str) -> str:
    target = find_target(call, word)
    if target is None:
        return _usage()
    if refusal := _refuse_here_only(call, target) or _refuse_change(call, target, None):
        return _refused(call, refusal)
    rows = people.find_roles(call.execute, call.thread.channel, [target.subject])
    if not rows:
        return _("{person} has no role that was given with `{command}`.", person=target.shown, command=_command())
    people.delete_role(call.execute, call.thread.channel, target.subject)
    _record_change(call, target, "")
    if not target.person:
        return _("The role of this chat is revoked.")
    rest = call.current.access.role_of(call.execute, _place_of_others(call), target.person)
    if not rest.name:
        return _("Revoked. {person} may not use me here any more.", person=target.shown)
    return _("Revoked. {person} is **{role}** here from now on.", person=target.shown, role=rest.name)


def _refused(call: CommandCall, refusal: str) -> str:
    """Return a refusal, and note it in the audit."""
    call.record(AuditKind.ACCESS_DENIED, {"command": "access"})
    return refusal


def _refuse_unknown(call: CommandCall, target: _Target) -> str | None:
    """Return why a role cannot be of this target: nobody has this id, or it is a direct chat; None if it can."""
    if not target.person:
        if call.message.private:
            return _("This chat has only you in it. Give a role to a person instead, or write `here` in a group.")
        return None
    channel = call.thread.channel
    if target.is_mention or is_possible_id(call.execute, channel, target.person):
        return None
    words = _(
        "I don't know anybody with the id `{name}`, and no role was changed. Write the id that `{whoami}` shows that"
        " person.",
        name=target.person,
        whoami=command_hint("whoami"),
    )
    found = suggest_people(call.execute, channel, target.person)
    if not found:
        return words
    people_ = list_items(f"{_plain(name)} (`{id}`)" for id, name in found)
    return join_sentences(words, _("Did you mean {people}?", people=people_))


def _refuse_role(call: CommandCall, target: _Target, role: RoleConfig) -> str | None:
    """Return why the author cannot give this role; None if they can."""
    if _giver_role(call, target).covers(role):
        return None
    return _("You cannot give the role **{role}**: it may do more than you.", role=role.name)


def _giver_role(call: CommandCall, target: _Target) -> RoleConfig:
    """Return the role that bounds what the author may give: a person gets a role in the whole workspace."""
    if not target.person:
        return call.role
    return call.current.access.workspace_role_of(call.execute, call.thread, call.message.author.id)


def _refuse_here_only(call: CommandCall, target: _Target) -> str | None:
    """Return why an author who gives roles in this chat only cannot change one of the workspace; None if they can."""
    own = _giver_role(call, target)
    if Right.ACCESS in own.rights:
        return None
    return _(
        "You may give and take roles in this chat only: `{here}`. A person's role holds in the whole workspace, where"
        " yours is **{role}**.",
        here=command_hint("access grant ROLE here"),
        role=own.name or "-",
    )


def _refuse_change(call: CommandCall, target: _Target, role: RoleConfig | None) -> str | None:
    """Return why the role of the target cannot be changed to this one (None: taken away); None if it can."""
    access, channel = call.current.access, call.thread.channel
    if target.person:
        standing = access.standing_of(call.execute, _place_of_others(call), target.person)
        if standing.personal and standing.setting:
            return _(
                "The configuration gives {person} the role **{role}** (`{setting}`). It can only be changed there.",
                person=target.shown,
                role=standing.role.name,
                setting=standing.setting,
            )
        there = access.workspace_role_of(call.execute, call.thread, target.person)
        giver = _giver_role(call, target)
        if not (giver.covers(standing.role) and giver.covers(there)):
            return _("You cannot change the role of {person}, who may do more than you.", person=target.shown)
    elif name := access.configured_role(channel, call.thread.chat):
        return _("The configuration gives this chat the role **{role}**. It can only be changed there.", role=name)
    rows = people.list_roles(call.execute)
    owned = [row for row in rows if row.role == OWNER.name]
    last = [(row.channel, row.subject) for row in owned] == [(channel, target.subject)]
    if last and not access.has_configured_owner() and (role is None or role.name != OWNER.name):
        return _("{person} is the last owner. Make somebody else an owner first.", person=target.shown)
    return None


def _record_change(call: CommandCall, target: _Target, role: str) -> None:
    channel, by = call.thread.channel, call.message.author.id
    log.info("access.changed channel=%s subject=%s role=%s by=%s", channel, target.subject, role, by)
    subject = audit.person_name(channel, target.person) if target.person else ""
    event = AuditEvent(AuditKind.ACCESS_CHANGED, call.thread, by, subject=subject, what={"role": role})
    audit.record(call.execute, event)


def _command() -> str:
    return command_hint("access")


def _plain(name: str) -> str:
    return without_formatting(name)
