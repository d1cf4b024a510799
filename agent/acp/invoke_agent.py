"""Give work to an external agent, which runs in the conversation's sandbox."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from langchain_core.tools import ToolException

from agent.acp.connection import AcpError
from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Runtime, ToolTraits, describe_as, make_tool
from agent.permissions.rules import Subject
from agent.settings.sections import AgentSettings, ExternalAgentSettings
from agent.spending import EXTERNAL, LEAD, ModelCall, PlannedCall, Refusal, count_call, reserve_call
from agent.subagents.sandboxes import WatchedSandbox
from catalogue import N_

if TYPE_CHECKING:
    from agent.acp.session import AcpAnswer


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it with the configured agents where the sandbox runs commands."""
    agents = {each.name: each for each in settings.external_agents}
    return _make_tool(agents) if agents and services.runs_commands else None


def _make_tool(agents: Mapping[str, ExternalAgentSettings]) -> AgentTool:
    @make_tool(
        ToolTraits(
            describe=describe_as(N_("Working with the agent {agent}")),
            needs_sandbox=True,
            permission="allow",
            subject=Subject("agent"),
            way_out="arguments",
            brings="pages",
        )
    )
    async def invoke_agent(
        agent: Annotated[str, "The name of the agent, from the list above."],
        prompt: Annotated[str, "The whole task: the agent sees nothing else of this conversation."],
        runtime: Runtime,
    ) -> str:
        """Give a task to another agent program, which works in your sandbox on the same files, and wait for its answer.
        Its working directory is /mnt/user-data/workspace. It begins afresh with each call. Agents:"""
        if agent not in agents:
            raise ToolException(f"There is no agent {agent!r}. There are {', '.join(agents)}.")
        return await _invoke(runtime, agents[agent], prompt)

    invoke_agent.description += "".join(f"\n- {each.name}: {each.description}" for each in agents.values())
    return invoke_agent


async def _invoke(runtime: Runtime, settings: ExternalAgentSettings, prompt: str) -> str:
    from agent.acp.session import AcpSession

    began, watched = time.monotonic(), WatchedSandbox(runtime.context.sandbox)
    write, call = runtime.stream_writer, runtime.tool_call_id or ""

    def show(now: str) -> None:
        write({"type": "progress", "call": call, "text": now})

    meter, box = runtime.context.meter, await watched.get()
    planned = PlannedCall(LEAD, settings.name, EXTERNAL, 0, 0)
    held = await reserve_call(meter, planned)
    if isinstance(held, Refusal):
        raise ToolException(f"The agent {settings.name} was not started: {held.what} {held.what_to_do}")
    session = AcpSession(settings, runtime.context, box, show)

    async def work() -> tuple[AcpAnswer, ModelCall]:
        return await session.run(prompt), session.spent(time.monotonic() - began)

    try:
        answer = await count_call(meter, planned, held, work, lambda error: session.spent(time.monotonic() - began))
    except AcpError as error:
        words = session.text or "(none)"
        raise ToolException(f"The agent {settings.name} did not finish: {error}\nIts last words: {words}") from error
    files = await watched.new_files()
    facts = [
        f"{settings.name}: {answer.tool_calls} tool calls, {time.monotonic() - began:.0f} s",
        *([] if answer.stop_reason == "end_turn" else [f"it stopped early: {answer.stop_reason}"]),
        *([f"files: {', '.join(files)}"] if files else []),
    ]
    return f"{answer.text}\n\n[{'; '.join(facts)}]"
