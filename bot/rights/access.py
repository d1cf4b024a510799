"""Access rules: who may talk, which role a person has where, and what that role lets them do.

A role is looked up where something happens, in its transaction, so that a change holds from the next message, press and
tool call on.

The role of a person in a direct chat that belongs to no workspace: it comes from their roles in all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agent.messages import HOOK_ID, Message, Thread
from bot.config.schema import AccessConfig, FollowUpLimits
from bot.config.team import NOBODY, OPERATOR, OWNER, Right, RoleConfig, TeamConfig
from bot.database.database import Execute
from bot.database.states import PairingState
from bot.database.web_people import WEB, true_person
from bot.rights.budgets import StandingBudgets
from bot.rights.deeds import Deed
from bot.storage import people
from bot.storage.channels import is_chat, is_workspace
from bot.storage.people import PersonRoleRow, PersonRow, chat_subject, person_subject
from catalogue import N_

T = TypeVar("T")

DIRECT_WORKSPACES = {"discord": "@me"}  # the workspace of direct chats, on platforms where these belong to none


def combine_roles(roles: Sequence[RoleConfig], default: RoleConfig) -> RoleConfig:
    """Return the role of a person who has these roles, one or more, in different workspaces.

    If one of them may less than the default role, what all of them may; otherwise what any of them may.
    """
    if any(not role.covers(default) for role in roles):
        least = next((role for role in roles if all(other.covers(role) for other in roles)), None)
        return least or _intersect(roles)
    most = next((role for role in roles if all(role.covers(other) for other in roles)), None)
    return most or _unite(roles)


def _intersect(roles: Sequence[RoleConfig]) -> RoleConfig:
    choices = [_common(each) for each in zip(*((r.models, r.agents, r.skills) for r in roles), strict=True)]
    rights = tuple(right for right in Right if all(right in role.rights for role in roles))
    if None in choices:  # nothing may answer
        rights = tuple(right for right in rights if right is not Right.TALK)
    models, agents, skills = (each or () for each in choices)
    return RoleConfig(
        _joined(roles),
        rights,
        deny=_any(role.deny for role in roles),
        ask=_any(role.ask for role in roles),
        allow=tuple(rule for rule in roles[0].allow if all(rule in role.allow for role in roles)),
        models=models,
        agents=agents,
        skills=skills,
    )


def _unite(roles: Sequence[RoleConfig]) -> RoleConfig:
    """Return what any of the roles may. Rules that let calls run without a question are not united."""
    return RoleConfig(
        _joined(roles),
        tuple(right for right in Right if any(right in role.rights for role in roles)),
        deny=tuple(rule for rule in roles[0].deny if all(rule in role.deny for role in roles)),
        ask=tuple(
            rule for rule in _any(role.ask for role in roles) if all(rule in (*role.ask, *role.deny) for role in roles)
        ),
        allow=tuple(rule for rule in roles[0].allow if all(rule in role.allow for role in roles)),
        models=_all_or_any([role.models for role in roles]),
        agents=_all_or_any([role.agents for role in roles]),
        skills=_all_or_any([role.skills for role in roles]),
    )


def _joined(roles: Sequence[RoleConfig]) -> str:
    return " + ".join(dict.fromkeys(role.name for role in roles))


def _any(rules: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(rule for each in rules for rule in each))


def _common(choices: Collection[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return what all choices allow (empty: everything); None for nothing."""
    limited = [each for each in choices if each]
    if not limited:
        return ()
    return tuple(name for name in limited[0] if all(name in each for each in limited)) or None


def _all_or_any(choices: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    return _any(choices) if all(choices) else ()


CLOSED = AccessConfig(pairing=False)  # of a channel that the configuration does not name
LOCAL_CHANNEL, LOCAL_WORKSPACE = "console", "local"  # its person started the service

CONFIGURED = N_("It comes from the configuration (`{setting}`).")
GIVEN = N_("{by} gave it with `{command}`.")
PAIRED = N_("It comes from pairing.")
INHERITED = N_("In direct chats, it comes from your roles on all servers.")
INHERITED_BY_ALL = N_("In direct chats, it comes from a role that everybody has on a server.")
STARTED = N_("You have it because you use the terminal of the service.")
BY_DEFAULT = N_("Everybody here has it.")


@dataclass(frozen=True, slots=True)
class Standing:
    """The role of a person in a place. `source` is the sentence that says where it comes from: the `setting`, or the
    person `by` whom it was given. `personal` is False for a person who is let in because everybody there is."""

    role: RoleConfig
    source: str = ""
    setting: str = ""
    by: str = ""
    personal: bool = True


STRANGER = Standing(NOBODY)


class AccessPolicy:
    """The access rules of every channel, the roles, and the people whom pairing allowed."""

    def __init__(
        self,
        rules: Mapping[str, AccessConfig],
        team: TeamConfig | None = None,
        budgets: StandingBudgets | None = None,
        follow_ups: FollowUpLimits | None = None,
        hooks: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self._hooks = hooks or {}  # the roles of hooks, by channel and id
        self.follow_ups = follow_ups or FollowUpLimits()
        self._rules = rules
        self.budgets = budgets or StandingBudgets()
        self.team = team or TeamConfig()
        self.roles = self.team.all_roles()

    def rules_for(self, channel: str) -> AccessConfig:
        """Return the rules of one channel; the strictest where none are configured."""
        return self._rules.get(channel, CLOSED)

    def may(self, execute: Execute, place: Thread, person: str, right: Right) -> bool:
        """Return whether this person has the right in this place now."""
        return right in self.role_of(execute, place, person).rights

    def may_do(self, execute: Execute, place: Thread, person: str, deed: Deed) -> bool:
        """Return whether this person has the right for a deed now: in this place, or where it reaches further."""
        find = self.workspace_role_of if deed.is_beyond_chat else self.role_of
        return deed.right is None or deed.right in find(execute, place, person).rights

    def role_of(self, execute: Execute, place: Thread, person: str) -> RoleConfig:
        """Return the role of a person in this place now; NOBODY for one who is not let in."""
        return self.standing_of(execute, place, person).role

    def workspace_role_of(self, execute: Execute, place: Thread, person: str) -> RoleConfig:
        """Return the role of a person in the whole workspace: a role in one chat does not count."""
        return self.role_of(execute, replace(place, chat="", topic=""), person)

    def standing_of(self, execute: Execute, place: Thread, person: str) -> Standing:
        """Return the role of a person in this place, and where it comes from. An assignment of the person decides
        before one of the chat, and that before one of the workspace; of equal ones that of the configuration."""
        if not person:
            return STRANGER
        if person.startswith(HOOK_ID):
            role = self._hooks.get((place.channel, person), "")
            return Standing(self.find_role(role), CONFIGURED, setting="hooks") if role else STRANGER
        if place.channel == WEB:
            return self._standing_on_web(execute, place, person)
        rule, known = self.rules_for(place.channel), people.find_person(execute, place.channel, person)
        _mine, around = people.subjects_of(place, person)
        of_person, of_chat = person_subject(place.workspace, person), chat_subject(place.chat)
        given = people.find_roles(execute, place.channel, (of_person, of_chat))
        if own := self._own(execute, place, person, known, given.get(of_person)):
            return own
        personal = person in rule.allow or bool(known and known.allowed == PairingState.ALLOWED)
        if not (personal or rule.open or {place.chat, place.workspace} & {*rule.allow}):
            return STRANGER
        shared = [self._configured(place.channel, subject, personal=False) for subject in around]
        shared.insert(1, self._given(given.get(of_chat)))
        shared.append(self._inherited_by_all(execute, place))
        standing = next(filter(None, shared), Standing(self._default, BY_DEFAULT))
        return replace(standing, personal=personal)

    def _standing_on_web(self, execute: Execute, place: Thread, person: str) -> Standing:
        """Return what a person has who acts over HTTP: their role in their private chat, in their own threads only."""
        channel, id = true_person(WEB, person)
        if not id or channel == WEB or place.chat not in ("", person):
            return STRANGER
        known = people.find_person(execute, channel, id)
        chat = (known.private_chat if known else None) or Thread(channel, "", "")
        if not place.chat:  # what reaches beyond a chat, there as here
            chat = replace(chat, chat="", topic="")
        return self.standing_of(execute, chat, id)

    def holds_role(self, execute: Execute, place: Thread, person: str) -> bool:
        """Return whether a person has a role in this place that is theirs, and not everybody's there."""
        known, subject = people.find_person(execute, place.channel, person), person_subject(place.workspace, person)
        given = people.find_roles(execute, place.channel, (subject,)).get(subject)
        return bool(person) and self._own(execute, place, person, known, given) is not None

    def _own(
        self, execute: Execute, place: Thread, person: str, known: PersonRow | None, given: PersonRoleRow | None
    ) -> Standing | None:
        """Return the role of a person in a place that is theirs, and not everybody's there."""
        mine, _around = people.subjects_of(place, person)
        configured = [self._configured(place.channel, subject) for subject in mine]
        if own := next(filter(None, [*configured, self._given(given)]), None):
            return own
        if inherited := self._inherited(execute, place, person, known):
            return inherited
        if place.channel == LOCAL_CHANNEL and self.rules_for(place.channel).open:
            return Standing(OWNER, STARTED)
        return Standing(self.find_role(OPERATOR.name), PAIRED) if known and known.operator else None

    def _inherited(self, execute: Execute, place: Thread, person: str, known: PersonRow | None) -> Standing | None:
        """Return what a person's roles in all workspaces give them in a direct chat that belongs to none of them."""
        if place.workspace != DIRECT_WORKSPACES.get(place.channel):
            return None
        roles = [role for _workspace, role in self._roles_elsewhere(execute, place.channel, person)]
        if not roles:
            return None
        if known and known.operator:
            roles.append(self.find_role(OPERATOR.name))
        return Standing(combine_roles(roles, self._default), INHERITED)

    def _inherited_by_all(self, execute: Execute, place: Thread) -> Standing | None:
        """Return the strictest role that everybody has in some workspace, if it may less than the default role.

        In a direct chat that belongs to no workspace, it holds for everybody: Fawn does not know who is in which one.
        """
        if place.workspace != DIRECT_WORKSPACES.get(place.channel):
            return None
        entries = self.rules_for(place.channel).roles
        named = [(who, self.find_role(entry.role)) for entry in entries for who in entry.who]
        roles = [
            role for who, role in named if not role.covers(self._default) and is_workspace(execute, place.channel, who)
        ]
        return Standing(combine_roles(roles, self._default), INHERITED_BY_ALL) if roles else None

    @property
    def _default(self) -> RoleConfig:
        return self.find_role(self.team.default_role)

    def _roles_elsewhere(self, execute: Execute, channel: str, person: str) -> list[tuple[str, RoleConfig]]:
        """Return a person's own roles by workspace; what the configuration says of one comes before `/access`."""
        rows = people.roles_of_person(execute, channel, person)
        found = {row.workspace: self.find_role(row.role) for row in rows}
        for entry in reversed(self.rules_for(channel).roles):
            for who in entry.who:
                workspace, slash, named = who.rpartition("/")
                if slash and named == person and self._counts(execute, channel, workspace, entry.role):
                    found[workspace] = self.find_role(entry.role)
        return [*found.items()]

    def _counts(self, execute: Execute, channel: str, id: str, role: str) -> bool:
        """Return whether a role of a person is one in a workspace, and not in a chat. While nothing was heard of it, a
        role that may less than the default one counts."""
        if is_workspace(execute, channel, id):
            return True
        return not self.find_role(role).covers(self._default) and not is_chat(execute, channel, id)

    def workspaces_where(self, execute: Execute, place: Thread, person: str, deed: Deed) -> list[str]:
        """Return the workspaces in which a person may do this: that of the place; for a direct chat that belongs to
        none, those in which they have such a role."""
        if place.workspace != DIRECT_WORKSPACES.get(place.channel):
            return [place.workspace] if self.may_do(execute, place, person, deed) else []
        roles = self._roles_elsewhere(execute, place.channel, person)
        found = [workspace for workspace, role in roles if deed.right in role.rights]
        standing = self.standing_of(execute, replace(place, chat="", topic=""), person)
        own = standing.source != INHERITED and deed.right in standing.role.rights
        return [place.workspace, *found] if own else found

    def configured_role(self, channel: str, subject: str) -> str:
        """Return the name of the role that the configuration gives to exactly this subject; "" for none."""
        found = self._configured(channel, subject)
        return found.role.name if found else ""

    def configured_roles(self) -> list[tuple[str, str, str]]:
        """Return channel, subject and role of all assignments of the configuration."""
        found = [
            (channel, who, entry.role)
            for channel, rule in self._rules.items()
            for entry in rule.roles
            for who in entry.who
        ]
        operators = [(channel, who, OPERATOR.name) for channel, rule in self._rules.items() for who in rule.operators]
        return found + operators

    def has_configured_owner(self) -> bool:
        """Return whether the configuration names an owner."""
        return any(entry.role == OWNER.name for rule in self._rules.values() for entry in rule.roles if entry.who)

    def _configured(self, channel: str, subject: str, *, personal: bool = True) -> Standing | None:
        rule, setting = self.rules_for(channel), f"channels.{channel}.access"
        if name := next((entry.role for entry in rule.roles if subject in entry.who), ""):
            return Standing(self.find_role(name), CONFIGURED, setting=f"{setting}.roles")
        if personal and subject in rule.operators:
            return Standing(self.find_role(OPERATOR.name), CONFIGURED, setting=f"{setting}.operators")
        return None

    def _given(self, row: PersonRoleRow | None) -> Standing | None:
        return Standing(self.find_role(row.role), GIVEN, by=row.giver_name or row.giver) if row else None

    def find_role(self, name: str) -> RoleConfig:
        """Return the role of this name. One that does not exist any more has no rights."""
        return self.roles.get(name) or RoleConfig(name)

    def reachable_operators(self, execute: Execute, *, console: bool) -> list[PersonRow]:
        """Return the operators whose private chat with the bot is known; the terminal's while its `console` is open."""
        named = [(channel, id) for channel, rule in self._rules.items() for id in _people_in(rule)]
        named += [(row.channel, row.person) for row in people.list_roles(execute) if row.person]
        found = [people.find_person(execute, *each) for each in named] + people.list_operators(execute)
        if console and self.rules_for(LOCAL_CHANNEL).open:
            found += people.list_people(execute, LOCAL_CHANNEL)
        rows = {(row.channel, row.person): row for row in found if row}
        return [
            row
            for row in rows.values()
            if (chat := row.private_chat) and self.may(execute, chat, row.person, Right.OPERATE)
        ]

    def may_enter(self, execute: Execute, message: Message) -> bool:
        """Return whether the author is let in here, with whatever role.

        `allow` and roles name people; `allow` also chats and workspaces. A guest must be named, or the chat; a bot must
        be named.
        """
        place, author = message.thread, message.author
        standing, rule = self.standing_of(execute, place, author.id), self.rules_for(place.channel)
        if standing is STRANGER or standing.personal:
            return standing is not STRANGER
        return not author.bot and (not author.guest or place.chat in rule.allow)


def _people_in(rule: AccessConfig) -> list[str]:
    """Return the ids of the people whom the rules of a channel name."""
    return [*rule.operators, *(each.rpartition("/")[2] for entry in rule.roles for each in entry.who)]


def notify_after(execute: Execute, channel: str, person: str, default: float) -> float | None:
    """Return after how many seconds the end of a turn pings this person; None: never."""
    known = people.find_person(execute, channel, person)
    seconds = default if known is None or known.notify is None else known.notify
    return seconds if seconds > 0 else None
