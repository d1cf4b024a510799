"""An operator's own policies: their places, and the faults of their configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    PolicyChain,
    ToolCallHandler,
    ToolCallResult,
)
from agent.mcp.servers import McpServers
from agent.policies.custom import GuardedPolicy, policy_name
from agent.policies.mcp import McpPolicy
from agent.settings.mcp import McpConfig
from agent.settings.models import AgentConfigError
from agent.settings.sections import AgentSettings, PolicySettings
from agent.turn.chains import worker_policies

HERE = "tests.unit.agent.test_custom_policies"


class Redact:
    """Wraps both kinds of calls."""

    def __init__(self, word: str = "") -> None:
        self.word = word

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        return await handler(request)

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        return await handler(request)


class WatchTools:
    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        return await handler(request)


class Nothing:
    pass


class Outdated:
    async def wrap_tool_call(self, request: ToolCallRequest) -> None:
        """Take less than Fawn passes."""


def chain_with(*entries: dict[str, Any], mcp: McpPolicy | None = None) -> PolicyChain:
    policies = tuple(PolicySettings(**{**entry, "use": f"{HERE}:{entry['use']}"}) for entry in entries)
    return worker_policies(replace(AgentSettings(), policies=policies), None, "worker", mcp=mcp)


def names(chain: PolicyChain) -> tuple[list[str], list[str]]:
    return [policy_name(each) for each in chain.model], [policy_name(each) for each in chain.tool]


def test_a_policy_stands_where_its_entry_says() -> None:
    _, tools = names(
        chain_with({"use": "WatchTools", "after": "permission"}, {"use": "WatchTools", "before": "tool_error"})
    )
    assert tools == [
        "whole_calls",
        "permission",
        "watch_tools",
        "exposure",
        "ledger",
        "truncation",
        "loop_detection",
        "rate_limit",
        "tool_log",
        "watch_tools",
        "tool_error",
        "outcome",
    ]
    _, tools = names(chain_with({"use": "WatchTools"}))
    assert tools[-1] == "watch_tools"


@pytest.mark.parametrize("place", [{"after": "permission"}, {"before": "ledger"}, {}])
def test_a_policy_stands_beside_the_tools_of_mcp_servers(place: dict[str, Any]) -> None:
    _, tools = names(chain_with({"use": "WatchTools", **place}, mcp=McpPolicy(McpServers(McpConfig()))))
    assert tools[:3] == ["whole_calls", "mcp", "permission"]
    assert "watch_tools" in tools[3:]


def test_a_policy_around_both_kinds_of_calls_gets_its_options() -> None:
    chain = chain_with({"use": "Redact", "after": "loop_detection", "options": {"word": "secret"}})
    model, tools = names(chain)
    assert model[model.index("redact") - 1] == tools[tools.index("redact") - 1] == "loop_detection"
    assert id(chain.model[model.index("redact")]) == id(chain.tool[tools.index("redact")])
    assert chain.tool[tools.index("redact")].inner.word == "secret"  # type: ignore[attr-defined]  # `GuardedPolicy` has it


@pytest.mark.parametrize("before", ["mcp", "permission"])
def test_no_policy_sees_a_call_of_a_server_before_it_is_judged(before: str) -> None:
    with pytest.raises(AgentConfigError, match="must come after `permission`"):
        chain_with({"use": "WatchTools", "before": before}, mcp=McpPolicy(McpServers(McpConfig())))


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"use": "WatchTools", "before": "permission"}, "must come after `permission`"),
        ({"use": "WatchTools", "before": "leger"}, "before: no policy has this name → did you mean 'ledger'"),
        ({"use": "WatchTools", "after": "tool_error", "before": "ledger"}, "cannot come after `tool_error`"),
        ({"use": "Nothing"}, "has neither wrap_model_call nor wrap_tool_call"),
        (
            {"use": "Outdated"},
            "use: has a `wrap_tool_call` that cannot be called as `wrap_tool_call\\(request, handler",
        ),
        ({"use": "Missing"}, "use: .* has no 'Missing'"),
        ({"use": "WatchTools", "options": {"x": 1}}, "x: .* does not have such an option"),
    ],
)
def test_an_order_that_cannot_be_met_is_a_fault(entry: dict[str, Any], fault: str) -> None:
    with pytest.raises(AgentConfigError, match=f"policies\\[0\\].*{fault}"):
        chain_with(entry)


class Broken:
    """Fails where `at` says: before the call, after it, or on purpose."""

    def __init__(self, at: str) -> None:
        self.at = at

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        result: ToolCallResult = await self._wrap(request, handler)
        return result

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        response: ModelCallResponse = await self._wrap(request, handler)
        return response

    async def _wrap(self, request: Any, handler: Any) -> Any:
        if self.at == "purpose":
            raise ToolException("this file is locked today")
        if self.at == "before":
            raise ZeroDivisionError
        result = await handler(request)
        if self.at == "after":
            raise ZeroDivisionError
        return result


def guarded(at: str, *, closed: bool) -> GuardedPolicy:
    chain = chain_with({"use": "Broken", "fail_closed": closed, "options": {"at": at}})
    policy = next(each for each in chain.tool if policy_name(each) == "broken")
    assert isinstance(policy, GuardedPolicy)
    return policy


CALL = ToolCallRequest({"name": "bash", "args": {}, "id": "1", "type": "tool_call"}, None, {}, cast(Any, None))


@pytest.mark.parametrize(
    ("at", "closed", "made", "text"),
    [
        ("before", True, 0, "bash was not called: the rule Broken of this service failed"),
        ("before", False, 1, "done"),
        ("after", True, 1, "bash was called, but its result is withheld"),
        ("after", False, 1, "done"),
        ("never", True, 1, "done"),
    ],
)
async def test_a_policy_that_fails_lets_no_call_pass_unless_it_may_be_left_out(
    at: str, closed: bool, made: int, text: str
) -> None:
    calls = []

    async def tool(request: ToolCallRequest) -> ToolCallResult:
        calls.append(request)
        return ToolMessage("done", tool_call_id="1")

    result = await guarded(at, closed=closed).wrap_tool_call(CALL, tool)
    assert text in str(cast(ToolMessage, result).content)
    assert len(calls) == made


@pytest.mark.parametrize("closed", [True, False])
async def test_what_is_raised_on_purpose_or_inside_of_a_policy_is_no_failure_of_it(closed: bool) -> None:
    async def tool(request: ToolCallRequest) -> ToolCallResult:
        raise KeyError("of the tool")

    with pytest.raises(ToolException, match="locked today"):
        await guarded("purpose", closed=closed).wrap_tool_call(CALL, tool)
    with pytest.raises(KeyError, match="of the tool"):
        await guarded("never", closed=closed).wrap_tool_call(CALL, tool)


async def test_a_model_call_happens_without_an_open_policy_and_not_with_a_closed_one() -> None:
    asked = []

    async def model(request: Any) -> Any:
        asked.append(request)
        return "answer"

    request: Any = "request"
    with pytest.raises(ZeroDivisionError):
        await guarded("before", closed=True).wrap_model_call(request, model)
    assert not asked
    found: Any = await guarded("before", closed=False).wrap_model_call(request, model)
    assert (found, len(asked)) == ("answer", 1)
