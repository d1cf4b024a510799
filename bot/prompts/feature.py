"""Prompts of MCP servers as a feature."""

from __future__ import annotations

import asyncio
from functools import partial

from bot.base.background import run_forever
from bot.base.jobs import JobKind
from bot.commands.feature import Feature, Parts, Service
from bot.prompts.commands import PROMPT_JOB, PromptCommands, PromptJobs
from bot.rights.current import Current

LOOK_SECONDS = 2.0  # between two looks for servers that have not started: a reload may bring some


def _start(service: Service) -> Parts:
    jobs = {PROMPT_JOB: JobKind(PromptJobs(service.store, service.current).run)}
    start = partial(run_forever, "MCP servers", partial(_start_servers, service.current))
    return Parts(jobs, {"MCP servers": start})


async def _start_servers(current: Current) -> None:
    """Start the servers in the background, a moment after the first messages: the menus list their prompts."""
    await asyncio.sleep(LOOK_SECONDS)
    await current.agent.start_servers()


FEATURE = Feature("prompts", named=PromptCommands(), start=_start)
