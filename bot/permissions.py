"""Permissions of a turn: the rules in force, and what people have allowed. Fails closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from agent.blocks import APPROVAL_OPTIONS, Approve
from agent.demo.rules import DEMO_RULES
from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import GRANTED, Judgement, Rule, ToolUse, grant_for, hides, judge
from agent.sections import PermissionConfig
from bot.access import AccessPolicy
from bot.claims import ClaimedRun
from bot.config.schema import Config
from bot.config.team import Right
from bot.current import Current
from bot.storage import grants
from bot.storage.database import Database, Execute
from bot.storage.grants import GrantRow


class TurnPermissions:
    """The `PermissionGate` of one run. A change of the rules or grants holds from the next call on."""

    def __init__(self, store: Database, current: Current, job: ClaimedRun) -> None:
        self._store = store
        self._current = current
        self._job = job

    async def judge(self, use: ToolUse) -> Judgement:
        """Return the verdict about a call. A grant answers what would be asked; it does not lift a denial."""
        judgement = judge(rules_in_force(self._current.config), use)
        if judgement.verdict == "ask" and await self._store.run(lambda execute: self._is_granted(execute, use)):
            return Judgement("allow", GRANTED)
        return judgement

    def hides(self, tool: str) -> bool:
        """Return whether a rule denies every call of the tool."""
        return hides(rules_in_force(self._current.config), tool)

    def _is_granted(self, execute: Execute, use: ToolUse) -> bool:
        rows = grants.matching_grants(execute, self._job.conversation, grant_for(use))
        return any(is_in_force(execute, self._current.access, row) for row in rows)

    async def complete(self, approve: Approve) -> Approve:
        """Return the approval with all options that the requester has: only operators may allow a call everywhere."""
        job, access = self._job, self._current.access
        if not approve.grant or not await self._store.run(
            lambda execute: access.may(execute, job.thread, job.requester, Right.OPERATE)
        ):
            return approve
        return replace(approve, option_count=len(APPROVAL_OPTIONS))


def rules_in_force(config: Config) -> Sequence[Rule]:
    """Return the rules of the configuration, and the built-in ones that apply to it. Roles of people attach here."""
    return _join_rules(config.permissions, config.sandbox.network.enabled, not config.models)


@lru_cache(maxsize=4)
def _join_rules(permissions: PermissionConfig, network: bool, demo: bool) -> Sequence[Rule]:
    return (*permissions.rules(), *(OUTSIDE_RULES if network else ()), *(DEMO_RULES if demo else ()))


def is_in_force(execute: Execute, access: AccessPolicy, row: GrantRow) -> bool:
    """Return whether a grant holds: one for everywhere does as long as its giver is an operator."""
    return row.conversation != grants.EVERYWHERE or access.is_operator(execute, row.channel, row.person)
