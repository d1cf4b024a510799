"""Put an operator's own policies at their places in a chain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent.core.policy import ModelPolicy, PolicyChain, ToolPolicy
from agent.near_misses import suggest_lazily
from agent.policies.guarded import GuardedPolicy
from agent.settings.models import AgentConfigError
from agent.settings.own_code import call_own, find_own
from agent.settings.sections import PolicySettings
from catalogue import N_, LazyText

FIXED_FIRST = "permission"  # nothing may see or change a call before it is judged


def policy_name(policy: object) -> str:
    """Return the name that a policy has in the configuration: LedgerPolicy is `ledger`."""
    own = policy.inner if isinstance(policy, GuardedPolicy) else policy
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(own).__name__.removesuffix("Policy")).lower()


def place_policies(chain: PolicyChain, entries: Sequence[PolicySettings]) -> PolicyChain:
    """Return the chain with the configured policies, in the order of the entries. Raises AgentConfigError."""
    model: list[Any] = list(chain.model)
    tool: list[Any] = list(chain.tool)
    for number, entry in enumerate(entries):
        at = ("policies", number)
        policy = _load_policy(entry, at)
        wraps = [
            chain for chain, method in ((model, "wrap_model_call"), (tool, "wrap_tool_call")) if hasattr(policy, method)
        ]
        if not wraps:
            wrong = LazyText(N_("{use} has neither wrap_model_call nor wrap_tool_call"), use=entry.use)
            raise AgentConfigError((*at, "use"), wrong, LazyText(N_("docs/extend.md shows one")))
        guarded = GuardedPolicy(policy, closed=entry.fail_closed)
        for policies in wraps:
            place = _find_place(policies, entry, at)
            if policies is tool and place <= [policy_name(each) for each in tool].index(FIXED_FIRST):
                wrong = LazyText(N_("a policy around the tools must come after `{name}`"), name=FIXED_FIRST)
                fix = LazyText(N_("write `after: {name}`, or no place at all"), name=FIXED_FIRST)
                raise AgentConfigError(at, wrong, fix)
            policies.insert(place, guarded)
    return PolicyChain(model, tool)


def _find_place(policies: Sequence[ModelPolicy | ToolPolicy], entry: PolicySettings, at: tuple[str, int]) -> int:
    """Return the index at which the entry's policy joins these. Raises AgentConfigError."""
    names = [policy_name(each) for each in policies]
    for setting, name in (("before", entry.before), ("after", entry.after)):
        if name and name not in names:
            wrong = LazyText(N_("no policy has this name"))
            raise AgentConfigError((*at, setting), wrong, suggest_lazily(name, names))
    first = names.index(entry.after) + 1 if entry.after else 0
    last = names.index(entry.before) if entry.before else len(names)
    if first > last:
        text = N_("{use} cannot come after `{after}` and before `{before}`: the order is {names}")
        wrong = LazyText(text, use=entry.use, after=entry.after, before=entry.before, names=names)
        raise AgentConfigError(at, wrong, LazyText(N_("remove `before` or `after`")))
    return first if entry.after else last


def _load_policy(entry: PolicySettings, at: tuple[str, int]) -> Any:
    return call_own(entry.use, find_own(entry.use, at), at, options=entry.options)
