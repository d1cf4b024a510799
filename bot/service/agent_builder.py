"""Build the agent of a configuration, with the services that its tools use.

Have the pause that a model's server asks one process for kept by all that share the database.

A refusal names its end, so it is worth a letter: each process would be refused once more to learn it. That a server
fails is not told: the cause may be the network of one process, and the calls of the others would leave a good server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.core.context import MakePreviewLink, ToolServices
from agent.parsing.child import ParserProcess
from agent.settings.mcp_tokens import TokenFolder
from agent.settings.sections import AgentSettings, WebConfig
from agent.skills.library import SkillLibrary
from agent.web.addresses import AddressGuard
from agent.web.fetcher import WebFetcher
from agent.web.search import make_search
from bot.base.leases import dump_letter, load_letter
from bot.base.skill_library import open_library
from bot.base.stored_secrets import token_folder
from bot.base.tool_names import check_tool_names
from bot.config.schema import Config
from bot.database.data_lock import kernel_id
from bot.database.database import Database
from bot.rights.current import Current
from bot.service.shared_files import SharedFiles, SharedTokens

if TYPE_CHECKING:
    from agent.turn.turn import Agent


log = logging.getLogger(__name__)

TOPIC = "models.paused"
LEAST_SECONDS = 0.5  # a shorter pause is over when the others hear of it
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})  # each machine has a server of its own there


def tell_pause(store: Database, server: str, seconds: float) -> None:
    """Tell the other processes, if there are any."""
    if store.is_shared and seconds >= LEAST_SECONDS:
        store.send(TOPIC, dump_letter("pause", server=_digest(server), seconds=round(seconds, 3)))


def read_pauses(store: Database, current: Current) -> None:
    """Have the calls of this process wait as others say. Its agent is loaded."""

    def take(_sender: str, text: str) -> None:
        letter = load_letter(text)
        server, seconds = letter.get("server"), letter.get("seconds")
        if not isinstance(server, str) or not isinstance(seconds, int | float) or seconds <= 0:
            return
        traffic = current.agent.traffic
        for model in current.agent.models.values():
            if _digest(model.settings.server) == server:
                traffic.endpoint_of(model.settings).pause(seconds)
                log.info("model.paused_elsewhere model=%s seconds=%.1f", model.settings.name, seconds)

    store.read_letters(TOPIC, take)


def _digest(server: str) -> str:
    """Return a server's name in letters: an address may hold what is not for a log of the database."""
    try:
        is_here = urlsplit(server).hostname in LOOPBACK
    except ValueError:  # no address
        is_here = False
    machine = _machine() if is_here else ""
    return hashlib.sha256(f"{machine} {server}".encode()).hexdigest()[:32]


def _machine() -> str:
    try:
        return kernel_id()
    except OSError:  # this system does not say it
        return socket.gethostname()


class AgentBuilder:
    """Builds agents over one store of checkpoints and one kind of sandbox."""

    def __init__(
        self, checkpoints: Database, skills: SkillLibrary, preview: MakePreviewLink | None, *, runs_commands: bool
    ) -> None:
        self.parser = ParserProcess()  # of all agents and uploads
        self._checkpoints = checkpoints
        self._skills = skills
        self._preview = preview
        self._runs_commands = runs_commands

    def _make_fetcher(self, web: WebConfig) -> WebFetcher:
        guard = AddressGuard(hosts=web.hosts)
        return WebFetcher(obeys_robots=web.robots, guard=guard, parser=self.parser, proxy=web.proxy)

    def _tokens_of(self, config: Config) -> TokenFolder:
        folder, store = token_folder(config), self._checkpoints
        exchange = SharedTokens(SharedFiles(store, config.data_dir)) if store.is_shared else None
        return replace(folder, exchange=exchange, renews=True)

    async def build(self, config: Config) -> tuple[Agent, WebFetcher | None]:
        """Return the agent, and what reads web pages if the configuration allows that. Raises AgentConfigError."""
        from agent.turn.factory import build_agent

        await asyncio.to_thread(check_tool_names, config)
        fetcher = self._make_fetcher(config.web) if config.web.fetch else None
        services = ToolServices(
            self._runs_commands,
            self._preview,
            self._skills,
            config.skills.evolution,
            config.has_memory,
            fetcher,
            make_search(config.web.search, config.web.proxy),
            config.schedules.per_person > 0,
            config.tasks.per_thread > 0 and self._runs_commands,
            self.parser,
        )
        settings = AgentSettings(
            config.roles,
            config.prompt,
            config.context,
            config.goal,
            config.time_zone,
            policies=config.policies,
            tools=config.tools,
            subagents=config.subagents,
            agents=config.agents,
            external_agents=config.external_agents,
            mcp=config.mcp,
            tokens=self._tokens_of(config),
            calls=config.limits.of_calls,
            tell_pause=partial(tell_pause, self._checkpoints),
        )
        return await build_agent(config.models, settings, self._checkpoints, services), fetcher


async def try_agent(config: Config, *, runs_commands: bool = True) -> None:
    """Build the agent as the service does, without its data, and close it again. Raises AgentConfigError."""
    with tempfile.TemporaryDirectory(prefix="fawn-check-") as folder:
        async with Database(Path(folder) / "checkpoints.db") as checkpoints:
            builder = AgentBuilder(checkpoints, open_library(config), None, runs_commands=runs_commands)
            agent, _fetcher = await builder.build(config)
            await agent.close()
