"""Permissions of a turn: the rules in force, the roles of its people, and what people have allowed. Fails closed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from agent.blocks import APPROVAL_OPTIONS, Approve, Failed
from agent.demo.approval_rule import DEMO_RULES
from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import (
    GRANTED,
    Judgement,
    Rule,
    ToolUse,
    compares,
    grant_for,
    hides,
    hiding_rules,
    judge,
    parse_rules,
    strictest,
)
from bot.config.schema import Config
from bot.config.team import ApprovalRule, Right, RoleConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.rights.access import AccessPolicy
from bot.rights.approvals import find_approval_rule, may_approve, route_approval
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.work_rights import describe_refusal
from bot.storage import calls, runs
from bot.storage.calls import GrantRow

WEB_TOOLS = ("web_fetch", "web_search")
COMMAND_TOOLS = ("bash", "run_skill", "invoke_agent")  # they reach the network of the sandbox
SKILL_TOOL = "run_skill"


class TurnPermissions:
    """The `PermissionGate` of one run. A change of rules, grants or roles holds from the next call on.

    A call needs the rights of everybody whose messages the run answers: the strictest verdict decides.
    """

    def __init__(self, store: Database, current: Current, job: ClaimedRun) -> None:
        self._store = store
        self._current = current
        self._job = job
        self._roles: Sequence[RoleConfig] = job.roles  # at the last call
        self._hidden: dict[str, bool] = {}  # the tools that were looked up, for the configuration and the roles:
        self._hidden_by: tuple[Config, Sequence[RoleConfig | None]] | None = None
        self._hiding: Sequence[Sequence[Rule]] = ()

    @property
    def access(self) -> AccessPolicy:
        """The access rules in force."""
        return self._current.access

    async def refuse_work(self) -> Failed | None:
        """Return the end of a run whose requester may not have work done any more, and note it in the audit."""
        job = self._job
        if Right.TALK in job.role.rights:
            return None
        denied = AuditEvent(AuditKind.ACCESS_DENIED, job.thread, job.requester, run=job.run)
        await self._store.run(lambda execute: audit.record(execute, denied))
        return Failed(describe_refusal(job.role), "")

    async def judge(self, use: ToolUse) -> Judgement:
        """Return the verdict about a call. A grant answers what would be asked; it does not lift a denial."""
        config = self._current.config
        roles = self._roles = await self._store.run(self._look_up_roles, durable=False)
        if use.subject and use.subject.kind == "shell":  # parsing takes a while: neither in the loop nor in the store
            judgement = await asyncio.to_thread(judge_for_roles, config, roles, use)
        else:
            judgement = judge_for_roles(config, roles, use)
        if judgement.verdict == "ask" and await self._store.run(
            lambda each: self._is_granted(each, use), durable=False
        ):
            return Judgement("allow", GRANTED)
        return judgement

    def hides(self, tool: str) -> bool:
        """Return whether a rule denies every call of the tool, as the roles were at the last call."""
        config, roles = self._current.config, tuple(self._roles or (None,))
        if self._hidden_by is None or self._hidden_by[0] is not config or self._hidden_by[1] != roles:
            self._hidden_by, self._hidden = (config, roles), {}
            self._hiding = [hiding_rules(rules_in_force(config, role)) for role in roles]
        if (known := self._hidden.get(tool)) is None:
            known = self._hidden[tool] = any(hides(rules, tool) for rules in self._hiding)
        return known

    def compares(self, tool: str) -> bool:
        """Return whether a rule compares the arguments of the tool, or asks, so that a grant does."""
        roles = self._roles or (None,)
        return any(compares(rules_in_force(self._current.config, role), tool) for role in roles)

    def _look_up_roles(self, execute: Execute) -> Sequence[RoleConfig]:
        people, access = self._people(execute), self.access
        return [*dict.fromkeys(access.role_of(execute, self._job.thread, person) for person in people)]

    def _people(self, execute: Execute) -> Collection[str]:
        run = runs.find_run(execute, self._job.run)
        return runs.people_of(run) if run else [self._job.requester]

    def _is_granted(self, execute: Execute, use: ToolUse) -> bool:
        rule = find_approval_rule(self.access.team, use)
        rows = calls.matching_grants(execute, self._job.conversation, grant_for(use))
        people = self._people(execute) if rule else ()
        return any(is_in_force(execute, self.access, row, rule, people) for row in rows)

    async def complete(self, approve: Approve) -> Approve:
        """Return the approval with all options that the requester has, or as those get it who decide instead.

        Only operators may allow a call everywhere.
        """
        return await self._store.run(lambda execute: self._complete(execute, approve), durable=False)

    def _complete(self, execute: Execute, approve: Approve) -> Approve:
        role = self.access.role_of(execute, self._job.thread, self._job.requester)
        rule = find_approval_rule(self.access.team, approve.use)
        if rule or Right.APPROVE not in role.rights:
            return route_approval(approve, rule or ApprovalRule(), self._job.requester)
        everywhere = self.access.workspace_role_of(execute, self._job.thread, self._job.requester)
        may_grant = approve.grant and Right.OPERATE in everywhere.rights
        return replace(approve, option_count=len(APPROVAL_OPTIONS)) if may_grant else approve


def rules_in_force(config: Config, role: RoleConfig | None = None) -> Sequence[Rule]:
    """Return the rules of the configuration and of a role, and the built-in ones that apply."""
    permissions, network = config.permissions, config.sandbox.network.enabled
    approvals = tuple(text for rule in config.team.approvals for text in rule.calls)
    return (
        *_rules_of_all(permissions.deny, (*permissions.ask, *approvals), permissions.allow),
        *(_rules_of_role(role, network) if role else ()),
        *(OUTSIDE_RULES if network else ()),
        *(() if config.models else DEMO_RULES),
    )


@lru_cache(maxsize=32)
def _rules_of_role(role: RoleConfig, sandbox_network: bool) -> Sequence[Rule]:
    denied = [] if Right.NETWORK in role.rights else [*WEB_TOOLS, *(COMMAND_TOOLS if sandbox_network else ())]
    return (*role.rules(), *parse_rules(deny=denied))


@lru_cache(maxsize=4)
def _rules_of_all(deny: Iterable[str], ask: Iterable[str], allow: Iterable[str]) -> Sequence[Rule]:
    return parse_rules(deny, ask, allow)


def judge_for_role(config: Config, role: RoleConfig, use: ToolUse) -> Judgement:
    """Return the verdict about a call for one role."""
    if Right.TALK not in role.rights:
        return Judgement("deny", f"a person of this request has no right to have work done: role {role.name or 'none'}")
    skill = str(use.args.get("name"))
    if use.name == SKILL_TOOL and role.skills and not {skill, skill.replace("_", "-")} & {*role.skills}:
        return Judgement("deny", f"the role {role.name} may use these skills only: {', '.join(role.skills)}")
    return judge(rules_in_force(config, role), use)


def judge_for_roles(config: Config, roles: Iterable[RoleConfig], use: ToolUse) -> Judgement:
    """Return the strictest verdict about a call for several roles."""
    return strictest((judge_for_role(config, role, use) for role in roles), "deny")


def is_in_force(
    execute: Execute,
    access: AccessPolicy,
    row: GrantRow,
    rule: ApprovalRule | None = None,
    requesters: Collection[str] = (),
) -> bool:
    """Return whether a grant holds: as long as its giver may approve such calls; everywhere only an operator's."""
    if row.conversation == calls.EVERYWHERE:
        role = access.workspace_role_of(execute, row.thread, row.person)
        if Right.OPERATE not in role.rights:
            return False
    else:
        role = access.role_of(execute, row.thread, row.person)
    return may_approve(role, rule, is_requester=row.person in requesters)
