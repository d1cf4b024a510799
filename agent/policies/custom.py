"""Put an operator's own policies at their places in a chain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent.models.settings import AgentConfigError
from agent.policies.base import ModelPolicy, PolicyChain, ToolPolicy
from agent.sections import PolicySettings
from catalogue import N_, LazyText
from sandbox.named_code import find_code

CANNOT_BE_MADE = N_("{use} cannot be made: {error}")
NAME_CODE = N_("name it as package.module:name; its module may be beside the configuration (docs/extend.md)")
FIXED_FIRST = "permission"  # nothing may see or change a call before it is judged


def policy_name(policy: object) -> str:
    """Return the name that a policy has in the configuration: LedgerPolicy is `ledger`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(policy).__name__.removesuffix("Policy")).lower()


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
            raise AgentConfigError(at, wrong)
        for policies in wraps:
            place = _find_place(policies, entry, at)
            if policies is tool and place <= [policy_name(each) for each in tool].index(FIXED_FIRST):
                wrong = LazyText(N_("a policy around the tools must come after `{name}`"), name=FIXED_FIRST)
                raise AgentConfigError(at, wrong)
            policies.insert(place, policy)
    return PolicyChain(model, tool)


def _find_place(policies: Sequence[ModelPolicy | ToolPolicy], entry: PolicySettings, at: tuple[str, int]) -> int:
    """Return the index at which the entry's policy joins these. Raises AgentConfigError."""
    names = [policy_name(each) for each in policies]
    for name in filter(None, (entry.before, entry.after)):
        if name not in names:
            text = N_("there is no policy {name!r} here; there are {names}")
            raise AgentConfigError(at, LazyText(text, name=name, names=names))
    first = names.index(entry.after) + 1 if entry.after else 0
    last = names.index(entry.before) if entry.before else len(names)
    if first > last:
        text = N_("{use} cannot come after `{after}` and before `{before}`: the order is {names}")
        wrong = LazyText(text, use=entry.use, after=entry.after, before=entry.before, names=names)
        raise AgentConfigError(at, wrong)
    return first if entry.after else last


def _load_policy(entry: PolicySettings, at: tuple[str, int]) -> Any:
    try:
        return find_code(entry.use)(**entry.options)
    except Exception as error:  # noqa: BLE001  # the operator's code may raise anything
        wrong = LazyText(CANNOT_BE_MADE, use=entry.use, error=f"{type(error).__name__}: {error}")
        raise AgentConfigError(at, wrong, LazyText(NAME_CODE)) from None
