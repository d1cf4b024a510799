"""Prompts of MCP servers as a feature."""

from __future__ import annotations

from bot.feature import Feature, Parts, Service
from bot.prompts.commands import PROMPT_JOB, PromptCommands, PromptJobs
from bot.service.jobs import JobKind


def _start(service: Service) -> Parts:
    return Parts({PROMPT_JOB: JobKind(PromptJobs(service.store, service.current).run)})


FEATURE = Feature("prompts", named=PromptCommands(), start=_start)
