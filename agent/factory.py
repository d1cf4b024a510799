"""Build the agent from its settings: models, prompt, tools and policies.

Importing this module loads the agent stack, which takes more than a second: import it in a thread.
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
from agent.context import MakePreviewLink, TransactionRunner, TurnContext
from agent.models.loader import load_model
from agent.models.settings import DEMO_CLASS_PATH, AgentConfigError, ModelSettings
from agent.policies.accounting import AccountingPolicy
from agent.policies.base import PolicyMiddleware
from agent.policies.call_limit import CallLimitPolicy
from agent.policies.empty_response import EmptyResponsePolicy
from agent.policies.ledger import LedgerPolicy
from agent.policies.loop_detection import LoopDetectionPolicy
from agent.policies.retry import RetryPolicy
from agent.policies.steering import SteeringPolicy
from agent.policies.summarization import SummarizationPolicy
from agent.policies.tool_errors import ToolErrorPolicy
from agent.policies.truncation import TruncationPolicy
from agent.resume import Graph, State
from agent.title import TitleMaker
from agent.tools import SANDBOX_TOOLS, is_idempotent, make_tools
from agent.turn import Agent
from agent.user_message import MessageFormatter

MAX_MODEL_CALLS = 500  # in one turn


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The agent's tools, those that need the sandbox, and the calls that may run again after a crash."""

    tools: Sequence[BaseTool]
    needs_sandbox: frozenset[str] = frozenset()
    idempotent: Callable[[str, Mapping[str, Any]], bool] = lambda name, args: False


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The operator's settings, except the models. By default ("") the first model leads, conversations are summarized
    by their own model, and a title is the first words of a conversation."""

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
    retry_seconds: float = 1.0  # the first backoff after a model error


async def build_agent(
    models: Sequence[ModelSettings],
    settings: AgentSettings,
    database: TransactionRunner,
    toolbox: Toolbox | None = None,
    *,
    commands: bool,
    show: MakePreviewLink | None = None,
) -> Agent:
    """Build the agent; without a model, the built-in demo answers. Raises AgentConfigError.

    `commands`: the sandbox can run commands. `show` makes preview links to servers in the sandbox.
    """
    checkpointer = LatestCheckpointer(database)
    await checkpointer.create_tables()
    entries = tuple(models) or (ModelSettings("demo", DEMO_CLASS_PATH, display_name="Built-in demo"),)
    toolbox = toolbox or Toolbox(make_tools(commands, show), SANDBOX_TOOLS, is_idempotent)
    return await asyncio.to_thread(_assemble_agent, entries, settings, checkpointer, toolbox)


async def _run_inline(_: object, context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return context.run(function, *args, **kwargs)


def _assemble_agent(
    entries: Sequence[ModelSettings], settings: AgentSettings, checkpointer: LatestCheckpointer, toolbox: Toolbox
) -> Agent:
    # LangSmith takes two thread hops and a task per middleware call for its bookkeeping, even when it is off.
    set_runtime_overrides(aio_to_thread=_run_inline)
    models = {entry.name: load_model(entry) for entry in entries}
    lead = settings.lead_model or entries[0].name
    for role, name in (("lead", lead), ("title", settings.title_model), ("summary", settings.summary_model)):
        if name and name not in models:
            raise AgentConfigError(f"roles: {role}: there is no model {name!r}; configured are {', '.join(models)}")
    prompt = read_prompt(settings.prompt_file, settings.prompt_extend)
    formatter = MessageFormatter(settings.time_zone)
    summary_model = models.get(settings.summary_model)

    def build_graph(entry: ModelSettings) -> Graph:
        model = models[entry.name]
        return create_agent(
            model,
            list(toolbox.tools),
            system_prompt=prompt,
            middleware=[_make_policies(model, entry, settings, toolbox, formatter, summary_model)],
            state_schema=State,
            context_schema=TurnContext,
            checkpointer=checkpointer,
        )

    return Agent(
        {entry.name: build_graph(entry) for entry in entries},
        lead,
        checkpointer,
        formatter,
        toolbox.needs_sandbox,
        TitleMaker(models.get(settings.title_model)),
        [close for model in models.values() if (close := _close_function(model))],
    )


def _make_policies(
    model: BaseChatModel,
    entry: ModelSettings,
    settings: AgentSettings,
    toolbox: Toolbox,
    formatter: MessageFormatter,
    summary_model: BaseChatModel | None,
) -> PolicyMiddleware:
    limits = (settings.trigger_tokens, settings.trigger_messages, settings.keep_messages)
    loop_detection = LoopDetectionPolicy()
    return PolicyMiddleware(  # the first is outermost
        model=(
            SteeringPolicy(formatter),  # all others see the new messages, which join the state once
            loop_detection,
            CallLimitPolicy(settings.max_model_calls),
            SummarizationPolicy(summary_model, *limits),  # before the call, and after RetryPolicy reports an overflow
            EmptyResponsePolicy(),  # retries a call that succeeded without content
            RetryPolicy(entry.retries, first_seconds=settings.retry_seconds),
            AccountingPolicy(),  # counts every attempt
        ),
        tool=(
            LedgerPolicy(toolbox.idempotent),  # stores what the model received
            TruncationPolicy(settings.output_chars),
            loop_detection,  # compares whole outputs
            ToolErrorPolicy(),
        ),
        schemas=[convert_to_openai_tool(tool) for tool in toolbox.tools] if isinstance(model, ChatOpenAI) else (),
    )


def _close_function(model: BaseChatModel) -> Callable[[], Awaitable[None]] | None:
    return getattr(getattr(model, "root_async_client", None), "close", None)


def read_prompt(file: str = "", extend: str = "") -> str:
    """Return `file` or else agent/prompt.md, followed by `extend`. Raises AgentConfigError if it cannot be read."""
    source = Path(file) if file else resources.files("agent") / "prompt.md"
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AgentConfigError(f"prompt: file: {file!r} cannot be read: {reason}") from error
    return "\n\n".join(part for part in (text.strip(), extend.strip()) if part)
