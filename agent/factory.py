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

from agent.checkpointer import Checkpoints
from agent.context import Database, Desk
from agent.models.loader import load_model
from agent.models.settings import DEMO, AgentFault, ModelSettings
from agent.policies.base import Policies
from agent.policies.call_limit import Limit
from agent.policies.cleaning import Cleaning
from agent.policies.empty_response import Silence
from agent.policies.ledger import LedgerPolicy
from agent.policies.loop_detection import Loops
from agent.policies.retry import Retry
from agent.policies.steering import Steering
from agent.policies.summarization import Bounds, Summary
from agent.policies.tool_errors import Faults
from agent.policies.truncation import Outputs
from agent.policies.usage import Accounting
from agent.resume import Graph, State
from agent.title import Titles
from agent.turn import Agent
from agent.user_message import Humans

Show = Callable[[object, int], Awaitable[str]]  # a sandbox and a port of it become a link
CALLS = 500  # model calls in one turn


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The agent's tools, which of them need the sandbox, and which calls may be repeated without harm."""

    tools: Sequence[BaseTool]
    needs_sandbox: frozenset[str] = frozenset()
    idempotent: Callable[[str, Mapping[str, Any]], bool] = lambda name, args: False


@dataclass(frozen=True, slots=True)
class Plan:
    """What the operator may set about the agent, apart from the models. "" means the default: the first model leads
    and summarizes its own conversations, titles are the first words."""

    lead: str = ""
    title: str = ""
    summary: str = ""
    prompt_file: str = ""
    prompt_extend: str = ""
    zone: str = ""
    trigger_tokens: int = 48_000
    trigger_messages: int = 160
    keep_messages: int = 40
    output_chars: int = 12_000
    calls: int = CALLS
    retry_seconds: float = 1.0  # the first wait after a model error; it doubles


async def build_agent(
    models: Sequence[ModelSettings],
    plan: Plan,
    database: Database,
    toolbox: Toolbox | None = None,
    *,
    commands: bool,
    show: Show | None = None,
) -> Agent:
    """The agent for these settings; without a model the built-in demo answers. `commands` says whether the sandbox
    runs any, `show` makes links to servers in it. Raises AgentFault with what is wrong in the configuration."""
    checkpoints = Checkpoints(database)
    await checkpoints.setup()
    entries = tuple(models) or (ModelSettings("demo", DEMO, display_name="Built-in demo"),)
    return await asyncio.to_thread(_join, entries, plan, checkpoints, toolbox or _toolbox(commands, show))


async def _inline(_: object, context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return context.run(function, *args, **kwargs)


def _join(entries: Sequence[ModelSettings], plan: Plan, checkpoints: Checkpoints, toolbox: Toolbox) -> Agent:
    # LangSmith's bookkeeping around every middleware takes two thread hops and a task per call, also when it is off.
    set_runtime_overrides(aio_to_thread=_inline)
    chat = {settings.name: load_model(settings) for settings in entries}
    lead = plan.lead or entries[0].name
    for role, name in (("lead", lead), ("title", plan.title), ("summary", plan.summary)):
        if name and name not in chat:
            raise AgentFault(f"roles: {role}: there is no model {name!r}; configured are {', '.join(chat)}")
    prompt = read_prompt(plan.prompt_file, plan.prompt_extend)
    humans = Humans(plan.zone)
    summary = chat.get(plan.summary)
    graphs = {
        settings.name: _graph(chat[settings.name], settings, plan, prompt, toolbox, humans, summary, checkpoints)
        for settings in entries
    }
    return Agent(
        graphs,
        lead,
        checkpoints,
        humans,
        toolbox.needs_sandbox,
        Titles(chat.get(plan.title)),
        [close for model in chat.values() if (close := _closer(model))],
    )


def _graph(
    model: BaseChatModel,
    settings: ModelSettings,
    plan: Plan,
    prompt: str,
    toolbox: Toolbox,
    humans: Humans,
    summary: BaseChatModel | None,
    checkpoints: Checkpoints,
) -> Graph:
    loops = Loops()
    bounds = Bounds(plan.trigger_tokens, plan.trigger_messages, plan.keep_messages)
    policies = Policies(  # the first is outermost
        model=(
            Steering(humans),  # what is new is seen by all below, and added to the state once
            loops,
            Limit(plan.calls),
            Summary(summary, bounds),  # shortens before the call, and again when Retry reports an overflow
            Silence(),  # repeats a call that worked but said nothing
            Retry(settings.retries, first=plan.retry_seconds),
            Accounting(settings.name),  # every try counts
            Cleaning(),  # innermost: all others see a clean answer
        ),
        tool=(
            LedgerPolicy(toolbox.idempotent),  # keeps what the model got
            Outputs(plan.output_chars),
            loops,  # compares whole outputs
            Faults(),
        ),
        schemas=[convert_to_openai_tool(tool) for tool in toolbox.tools] if isinstance(model, ChatOpenAI) else (),
    )
    return create_agent(
        model,
        list(toolbox.tools),
        system_prompt=prompt,
        middleware=[policies],
        state_schema=State,
        context_schema=Desk,
        checkpointer=checkpoints,
    )


def _toolbox(commands: bool, show: Show | None) -> Toolbox:
    from agent.tools import NEEDS_SANDBOX, idempotent, tools

    return Toolbox(tools(commands, show), frozenset(NEEDS_SANDBOX), idempotent)


def _closer(model: BaseChatModel) -> Callable[[], Awaitable[None]] | None:
    return getattr(getattr(model, "root_async_client", None), "close", None)


def read_prompt(file: str = "", extend: str = "") -> str:
    """The system prompt: `file` in place of agent/prompt.md, `extend` after it. Raises AgentFault if it is missing."""
    if file:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise AgentFault(f"prompt: file: {file!r} cannot be read: {reason}") from error
    else:
        text = (resources.files("agent") / "prompt.md").read_text(encoding="utf-8")
    return "\n\n".join(part for part in (text.strip(), extend.strip()) if part)
