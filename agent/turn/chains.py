"""The policies of each kind of agent, in order: the first is outermost. A new policy attaches here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.core.policy import ModelPolicy, PolicyChain
from agent.core.user_message import MessageFormatter
from agent.models.loader import LoadedModel
from agent.policies.added_context import BriefPolicy, MemoryPolicy, PicturePolicy, SteeringPolicy
from agent.policies.custom import place_policies
from agent.policies.goal import GoalPolicy
from agent.policies.limits import AccountingPolicy, CallLimitPolicy, RateLimitPolicy, TrafficPolicy
from agent.policies.mcp import McpPolicy
from agent.policies.outcomes import OutcomePolicy, ToolLogPolicy
from agent.policies.permission import ExposurePolicy, PermissionPolicy
from agent.policies.plan_mode import PlanModePolicy
from agent.policies.retry import EmptyResponsePolicy, RetryPolicy, RoutePolicy
from agent.policies.summarization import SummarizationPolicy, TruncationPolicy
from agent.policies.tool_calls import LedgerPolicy, LoopDetectionPolicy, ToolErrorPolicy, WholeCallsPolicy
from agent.settings.sections import AgentSettings
from agent.subagents.board import TaskPolicy


def lead_policies(
    settings: AgentSettings,
    summary_model: LoadedModel | None,
    evaluator: LoadedModel | None,
    formatter: MessageFormatter,
    agent: str,
    mcp: McpPolicy | None = None,
    max_tokens: int = 0,
    answer: Sequence[ModelPolicy] = (),
) -> PolicyChain:
    """Return the policies of an agent that talks to people. `answer` makes a background agent's answers fit."""
    chain = worker_policies(settings, summary_model, agent, max_tokens, mcp, tells_person=True)
    steering = SteeringPolicy(formatter)  # all others see the new messages, which join the state once
    plan_mode, goal = PlanModePolicy(), GoalPolicy(evaluator, settings.goal)  # they answer the calls that they add
    whole_calls, *tool = chain.tool
    return replace(
        chain,
        model=(steering, plan_mode, goal, *answer, *chain.model),
        tool=(TaskPolicy(), whole_calls, plan_mode, goal, *tool),  # the board learns of every task, also a refused one
    )


def worker_policies(
    settings: AgentSettings,
    summary_model: LoadedModel | None,
    agent: str,
    max_tokens: int = 0,
    mcp: McpPolicy | None = None,
    *,
    tells_person: bool = False,
) -> PolicyChain:
    """Return the policies of `agent`, which runs inside a tool call: the messages of people belong to the lead."""
    loop_detection, permission = LoopDetectionPolicy(), PermissionPolicy()
    whole_calls = WholeCallsPolicy(loop_detection, tells_person=tells_person)
    tools_of_servers = (mcp,) if mcp else ()
    chain = PolicyChain(
        model=(
            *tools_of_servers,
            permission,  # hides denied tools
            BriefPolicy(),
            loop_detection,
            CallLimitPolicy(settings.max_model_calls, max_tokens),
            SummarizationPolicy(summary_model, settings.context),  # before the call, and after an overflow
            MemoryPolicy(),  # a summary does not include it
            RoutePolicy(),
            PicturePolicy(),  # each model of the route gets what it can use
            EmptyResponsePolicy(),  # retries a call that succeeded without content
            whole_calls,  # the others see calls that are whole and have unique ids
            RetryPolicy(settings.retry_seconds),
            TrafficPolicy(),  # every attempt waits for its place
            AccountingPolicy(agent),  # counts every attempt
        ),
        tool=(
            whole_calls,  # no other one sees a call that must not run
            *tools_of_servers,  # the others see which tool it is
            permission,  # a question about a call is not yet its beginning
            ExposurePolicy(),  # notes what the model is about to see
            LedgerPolicy(),  # stores what the model received
            TruncationPolicy(settings.context.output_chars),
            loop_detection,  # compares whole outputs
            RateLimitPolicy(),  # a call that is refused again and again is a loop
            ToolLogPolicy(),
            ToolErrorPolicy(),
            OutcomePolicy(),  # sees the exceptions
        ),
    )
    return place_policies(chain, settings.policies)
