"""Put an operator's own policies at their places in a chain.

Decide what happens where an operator's own policy fails: nothing, or the call without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ModelPolicy,
    PolicyChain,
    ToolCallHandler,
    ToolCallResult,
    ToolPolicy,
)
from agent.models.errors import ModelFailure
from agent.near_misses import suggest_lazily
from agent.settings.models import AgentConfigError, call_own, find_own
from agent.settings.sections import PolicySettings
from catalogue import N_, LazyText
from sandbox.named_code import find_misfit

log = logging.getLogger(__name__)

MEANT = (GraphBubbleUp, ToolException, ModelFailure)  # what a policy raises on purpose
NOT_MADE = "{name} was not called: the rule {policy} of this service failed. The operator can see why in the log."
WITHHELD = "{name} was called, but its result is withheld: the rule {policy} of this service failed."


class GuardedPolicy:
    """An own policy. If its code fails, a `closed` one lets no call pass, and an open one is left out of that call.

    What fails inside of it, in another policy or in the tool, is not its failure.
    """

    def __init__(self, inner: Any, *, closed: bool) -> None:
        self.inner, self._closed = inner, closed

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Make the call inside the policy."""
        call = _Watched(handler)
        try:
            response: ModelCallResponse = await self.inner.wrap_model_call(request, call)
        except Exception as error:
            if self._closed or not self._is_own(error, call):
                raise
            return call.results[-1] if call.results else await handler(request)
        return response

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool inside the policy."""
        call = _Watched(handler)
        try:
            result: ToolCallResult = await self.inner.wrap_tool_call(request, call)
        except Exception as error:
            if not self._is_own(error, call):
                raise
            if not self._closed:
                return call.results[-1] if call.results else await handler(request)
            name = request.tool_call["name"]
            text = (WITHHELD if call.results else NOT_MADE).format(name=name, policy=type(self.inner).__name__)
            return ToolMessage(text, tool_call_id=request.tool_call["id"], name=name, status="error")
        return result

    def _is_own(self, error: Exception, call: _Watched) -> bool:
        """Return whether the policy's own code failed, and log that."""
        if isinstance(error, MEANT) or error is call.error:
            return False
        log.error("policy.failed policy=%s closed=%s", type(self.inner).__name__, self._closed, exc_info=error)
        return True


class _Watched:
    """The handler that the policy gets: knows what it returned and raised."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.results: list[Any] = []
        self.error: BaseException | None = None

    async def __call__(self, request: Any) -> Any:
        try:
            result = await self._handler(request)
        except BaseException as error:
            self.error = error
            raise
        self.results.append(result)
        return result


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
        for method, protocol in (("wrap_model_call", ModelPolicy), ("wrap_tool_call", ToolPolicy)):
            if hasattr(policy, method) and (misfit := find_misfit(policy, protocol)):
                raise AgentConfigError((*at, "use"), misfit, LazyText(N_("docs/extend.md shows one")))
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
