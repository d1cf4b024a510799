"""The section `team:` of config.yaml: the roles of people, and whose approval calls need."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from agent.permissions.rules import Rule, RuleText, parse_rules
from agent.setting import NAME, setting

DEFAULT_AGENT = "default"


class Right(StrEnum):
    """What a role lets a person do. `RIGHT_NAMES` in bot/team/roles_commands.py says it for people."""

    TALK = "talk"  # have the agent work
    NETWORK = "network"  # have tools reach the internet
    APPROVE = "approve"  # approve the calls of their own requests
    APPROVE_OTHERS = "approve_others"  # approve calls of other people's requests
    SCHEDULE = "schedule"  # have work done at set times
    OPERATE = "operate"  # act for others: stop their turns, let people in, allow calls everywhere
    SKILLS = "skills"  # install and change skills
    ACCESS = "access"  # give and take roles
    USAGE = "usage"  # see the usage of everybody
    OWN = "own"  # have a role that operators neither give nor take


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """One entry of `team.roles`."""

    name: str = field(metadata={"help": "the name; one of a built-in role replaces that role", **NAME})
    rights: tuple[Right, ...] = setting((), f"what people of this role may do, of: {', '.join(Right)}")
    deny: tuple[RuleText, ...] = setting((), "calls that never run for this role, as in `permissions.deny`")
    ask: tuple[RuleText, ...] = setting((), "calls that need approval for this role")
    allow: tuple[RuleText, ...] = setting(
        (), "calls that run without a question for this role, unless `permissions` denies them or asks"
    )
    models: tuple[str, ...] = setting(
        (), "the models that may answer people of this role; where another one is chosen, the first; empty: all"
    )
    agents: tuple[str, ...] = setting(
        (),
        "the agents that may answer (`default` is the default one); where another one is chosen, the first; empty: all",
    )
    skills: tuple[str, ...] = setting((), "the skills that this role may use; empty: all")

    def rules(self) -> tuple[Rule, ...]:
        """Return the role's own rules about calls."""
        return parse_rules(self.deny, self.ask, self.allow)

    def covers(self, other: RoleConfig) -> bool:
        """Return whether the other role gives nothing that this one does not have."""
        free = Right.APPROVE in self.rights  # who approves their own calls may also give what runs without a question
        return (
            set(other.rights) <= set(self.rights)
            and set(self.deny) <= set(other.deny)
            and set(self.ask) <= {*other.deny, *other.ask}
            and (free or set(other.allow) <= set(self.allow))
            and all(
                not own or (theirs and set(theirs) <= set(own))
                for own, theirs in zip(self._choices(), other._choices(), strict=True)
            )
        )

    def choose_model(self, chosen: str) -> str:
        """Return the chosen model ("": the lead's) if this role may use it, else its first one."""
        return chosen if self.may_use_model(chosen) else self.models[0]

    def may_use_model(self, name: str) -> bool:
        """Return whether people of this role may choose a model."""
        return not self.models or name in self.models

    def may_use_agent(self, name: str) -> bool:
        """Return whether people of this role may choose an agent."""
        return not self.agents or name in self.agents

    def choose_agent(self, chosen: str) -> str:
        """Return the chosen agent ("": the default one) if this role may use it, else its first one."""
        named = chosen or DEFAULT_AGENT
        agent = named if self.may_use_agent(named) else self.agents[0]
        return "" if agent == DEFAULT_AGENT else agent

    def _choices(self) -> tuple[tuple[str, ...], ...]:
        return self.models, self.agents, self.skills


MEMBER_RIGHTS = (Right.TALK, Right.NETWORK, Right.APPROVE, Right.SCHEDULE)
OPERATOR_RIGHTS = (*MEMBER_RIGHTS, Right.APPROVE_OTHERS, Right.OPERATE, Right.SKILLS, Right.ACCESS, Right.USAGE)
VIEWER, MEMBER = RoleConfig("viewer"), RoleConfig("member", MEMBER_RIGHTS)
OPERATOR, OWNER = RoleConfig("operator", OPERATOR_RIGHTS), RoleConfig("owner", tuple(Right))
NOBODY = RoleConfig("")  # of people who are not let in
BUILTIN_ROLES = {role.name: role for role in (VIEWER, MEMBER, OPERATOR, OWNER)}


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """One entry of `channels.NAME.access.roles`."""

    role: str = field(metadata={"help": "the name of the role"})
    who: tuple[str, ...] = setting(
        (),
        "platform ids: a person, `WORKSPACE/PERSON`, `CHAT/PERSON`, or a chat or workspace for everybody in it who is"
        " let in; the most specific one decides",
    )


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """One entry of `team.approvals`."""

    calls: tuple[RuleText, ...] = setting((), "the calls, such as `bash(make deploy *)`; they need approval")
    roles: tuple[str, ...] = setting(
        (), "the roles that approve them; empty: every role with the right `approve_others`"
    )
    chat: str = setting(
        "", "address of a chat that is asked, too, `CHANNEL/WORKSPACE/CHAT`, as `/whoami` shows it there"
    )
    requester: bool = setting(False, "the person who asked may approve, too, if they have such a role")


@dataclass(frozen=True, slots=True)
class TeamConfig:
    """Who may do what (docs/team.md)."""

    default_role: str = setting("member", "the role of people who may talk to the bot and have no other one")
    roles: tuple[RoleConfig, ...] = setting(
        (), "roles beside `viewer`, `member`, `operator` and `owner`, described below"
    )
    approvals: tuple[ApprovalRule, ...] = setting(
        (),
        "calls that others than the requester approve, described below; the first entry with a matching call decides",
    )

    def all_roles(self) -> dict[str, RoleConfig]:
        """Return the built-in and the configured roles by name."""
        return BUILTIN_ROLES | {role.name: role for role in self.roles}
