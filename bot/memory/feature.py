"""The memory as a feature."""

from __future__ import annotations

from bot.base.jobs import JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.memory.checks import list_checks
from bot.memory.command import memory_command
from bot.memory.service import EMBED_JOB, EMBED_SECONDS, FORGET_JOB, FORGET_SECONDS, MEMORY_JOB, MemoryService
from bot.storage import personal
from catalogue import N_

MEMORY_WORDS = "forget N | export | off | on"


def _start(service: Service) -> Parts:
    memory = MemoryService(service.store, service.current, service.budgets)
    jobs = {
        MEMORY_JOB: JobKind(memory.extract),
        FORGET_JOB: JobKind(memory.forget_unused, FORGET_SECONDS),
        EMBED_JOB: JobKind(memory.embed_facts, EMBED_SECONDS),
    }
    return Parts(jobs, turn=memory.open_turn)


FEATURE = Feature(
    "memory",
    personal=personal.MEMORY,
    commands=(Command("memory", N_("what I remember of you"), memory_command, MEMORY_WORDS, rank=120),),
    checks=list_checks,
    start=_start,
)
