"""Hooks as a feature: their route, their jobs, and `/hooks`."""

from __future__ import annotations

from collections.abc import Sequence

from bot.base.background import JobKind
from bot.commands.call import Command
from bot.commands.feature import Door, Feature, Parts, Service
from bot.hooks.command import hooks_command
from bot.hooks.posting import HOOK_JOB, HookJobs
from bot.http.route import Route
from bot.rights import deeds
from bot.storage import personal
from catalogue import N_


def _routes(door: Door) -> Sequence[Route]:
    from bot.hooks.endpoint import HookEndpoint

    return HookEndpoint(door).routes()


def _start(service: Service) -> Parts:
    async def serve_relayed() -> None:
        from bot.hooks.endpoint import HookEndpoint, RelayedHooks

        await RelayedHooks(service.current, HookEndpoint(service)).serve()

    return Parts({HOOK_JOB: JobKind(HookJobs(service.current, service.channel).post)}, single={"relay": serve_relayed})


FEATURE = Feature(
    "hooks",
    personal=personal.HOOKS,
    commands=(
        Command("hooks", N_("what other systems post into chats"), hooks_command, deed=deeds.SEE_SERVICE, rank=190),
    ),
    routes=_routes,
    start=_start,
)
