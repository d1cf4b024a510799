"""Settings become an agent: models, prompt, tools and policies, joined once.

Importing this module loads the agent stack, which takes more than a second: do it in a thread, once the ports are open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from langsmith import set_runtime_overrides

from agent.checkpointer import LatestCheckpointer
from agent.context import TransactionRunner, TurnContext
from agent.models.loader import load_model
from agent.models.settings import DEMO_CLASS_PATH, AgentConfigError, ModelSettings
from agent.policies.base import PolicyMiddleware
from agent.policies.call_limit import CallLimitPolicy
from agent.policies.cleaning import CleaningPolicy
from agent.policies.empty_response import EmptyResponsePolicy
from agent.policies.ledger import LedgerPolicy
from agent.policies.loop_detection import LoopDetectionPolicy
from agent.policies.retry import RetryPolicy
from agent.policies.steering import SteeringPolicy
from agent.policies.summarization import ContextBounds, SummarizationPolicy
from agent.policies.tool_errors import ToolErrorPolicy
from agent.policies.truncation import TruncationPolicy
from agent.policies.usage import UsagePolicy
from agent.resume import Graph, State
from agent.title import TitleMaker
from agent.turn import Agent
from agent.user_message import MessageFormatter

Show = Callable[[object, int], Awaitable[str]]  # a sandbox and a port of it become a link
MAX_MODEL_CALLS = 500  # model calls in one turn


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The agent's tools, which of them need the sandbox, and which calls may be repeated without harm."""

    tools: Sequence[BaseTool]
    needs_sandbox: frozenset[str] = frozenset()
    idempotent: Callable[[str, Mapping[str, Any]], bool] = lambda name, args: False


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the operator may set about the agent, apart from the models. "" means the default: the first model leads
    and summarizes its own conversations, titles are the first words."""

    lead_model: str = ""
    title_model: str = ""
    summary_model: str = ""
    prompt_file: str = ""
    prompt_extend: str = ""
    time_zone: str = ""
    trigger_tokens: int = 48_000
    trigger_messages: int = 160
    keep_messages: int = 40
    output_chars: int = 12_000
    max_model_calls: int = MAX_MODEL_CALLS
    retry_seconds: float = 1.0  # the first wait after a model error; it doubles


async def build_agent(
    models: Sequence[ModelSettings],
    plan: AgentSettings,
    database: TransactionRunner,
    toolbox: Toolbox | None = None,
    *,
    commands: bool,
    show: Show | None = None,
) -> Agent:
    """The agent for these settings; without a model the built-in demo answers. `commands` says whether the sandbox
    runs any, `show` makes links to servers in it. Raises AgentFault with what is wrong in the configuration."""
    checkpoints = LatestCheckpointer(database)
    await checkpoints.create_tables()
    entries = tuple(models) or (ModelSettings("demo", DEMO_CLASS_PATH, display_name="Built-in demo"),)
    return await asyncio.to_thread(_build_graphs, entries, plan, checkpoints, toolbox or _make_toolbox(commands, show))


async def _run_inline(_: object, context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return context.run(function, *args, **kwargs)


def _build_graphs(
    entries: Sequence[ModelSettings], plan: AgentSettings, checkpoints: LatestCheckpointer, toolbox: Toolbox
) -> Agent:
    # LangSmith's bookkeeping around every middleware takes two thread hops and a task per call, also when it is off.
    set_runtime_overrides(aio_to_thread=_run_inline)
    chat = {settings.name: load_model(settings) for settings in entries}
    lead = plan.lead_model or entries[0].name
    for role, name in (("lead", lead), ("title", plan.title_model), ("summary", plan.summary_model)):
        if name and name not in chat:
            raise AgentConfigError(f"roles: {role}: there is no model {name!r}; configured are {', '.join(chat)}")
    prompt = read_prompt(plan.prompt_file, plan.prompt_extend)
    formatter = MessageFormatter(plan.time_zone)
    summary = chat.get(plan.summary_model)
    graphs = {
        settings.name: _build_graph(
            chat[settings.name], settings, plan, prompt, toolbox, formatter, summary, checkpoints
        )
        for settings in entries
    }
    return Agent(
        graphs,
        lead,
        checkpoints,
        formatter,
        toolbox.needs_sandbox,
        TitleMaker(chat.get(plan.title_model)),
        [close for model in chat.values() if (close := _close_model(model))],
    )


def _build_graph(
    model: BaseChatModel,
    settings: ModelSettings,
    plan: AgentSettings,
    prompt: str,
    toolbox: Toolbox,
    formatter: MessageFormatter,
    summary: BaseChatModel | None,
    checkpoints: LatestCheckpointer,
) -> Graph:
    loops = LoopDetectionPolicy()
    bounds = ContextBounds(plan.trigger_tokens, plan.trigger_messages, plan.keep_messages)
    policies = PolicyMiddleware(  # the first is outermost
        model=(
            SteeringPolicy(formatter),  # what is new is seen by all below, and added to the state once
            loops,
            CallLimitPolicy(plan.max_model_calls),
            SummarizationPolicy(summary, bounds),  # shortens before the call, and again when Retry reports an overflow
            EmptyResponsePolicy(),  # repeats a call that worked but said nothing
            RetryPolicy(settings.retries, first=plan.retry_seconds),
            UsagePolicy(settings.name),  # every try counts
            CleaningPolicy(),  # innermost: all others see a clean answer
        ),
        tool=(
            LedgerPolicy(toolbox.idempotent),  # keeps what the model got
            TruncationPolicy(plan.output_chars),
            loops,  # compares whole outputs
            ToolErrorPolicy(),
        ),
        schemas=[convert_to_openai_tool(tool) for tool in toolbox.tools] if isinstance(model, ChatOpenAI) else (),
    )
    return create_agent(
        model,
        list(toolbox.tools),
        system_prompt=prompt,
        middleware=[policies],
        state_schema=State,
        context_schema=TurnContext,
        checkpointer=checkpoints,
    )


def _make_toolbox(commands: bool, show: Show | None) -> Toolbox:
    from agent.tools import SANDBOX_TOOLS, is_idempotent, make_tools

    return Toolbox(make_tools(commands, show), frozenset(SANDBOX_TOOLS), is_idempotent)


def _close_model(model: BaseChatModel) -> Callable[[], Awaitable[None]] | None:
    return getattr(getattr(model, "root_async_client", None), "close", None)


def read_prompt(file: str = "", extend: str = "") -> str:
    """The system prompt: `file` in place of agent/prompt.md, `extend` after it. Raises AgentFault if it is missing."""
    if file:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise AgentConfigError(f"prompt: file: {file!r} cannot be read: {reason}") from error
    else:
        text = (resources.files("agent") / "prompt.md").read_text(encoding="utf-8")
    return "\n\n".join(part for part in (text.strip(), extend.strip()) if part)
