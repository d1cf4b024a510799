"""The configuration in force, and the agent built from it: read where a value is needed, never copied at start."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agent.skills.library import SkillLibrary
from bot.config.schema import AccessConfig, Config, FollowUpLimits, ServiceLimits
from bot.rights.access import AccessPolicy
from bot.rights.budgets import StandingBudgets
from bot.storage.languages import ChosenLanguages
from catalogue import _

if TYPE_CHECKING:  # it imports the whole agent stack, which the bot loads in a thread after it listens
    from agent.turn.turn import Agent
    from agent.web.fetcher import WebFetcher

log = logging.getLogger(__name__)


class Current:
    """Holds one configuration and one agent; `replace` puts new ones in their place while turns run."""

    agent: Agent  # from the first `replace` on
    fetcher: WebFetcher | None = None  # reads web pages for the watches

    def __init__(self, config: Config, skills: SkillLibrary | None = None) -> None:
        self.config = config
        self.skills = skills
        self._access: tuple[Config, AccessPolicy] | None = None  # with the configuration that it is made from
        self.languages = ChosenLanguages()
        self._uses: Counter[Agent] = Counter()

    @property
    def limits(self) -> ServiceLimits:
        """The limits of the service."""
        return self.config.limits

    @property
    def follow_ups(self) -> FollowUpLimits:
        """How often the agent may go on without a person."""
        limits = self.config.limits
        return FollowUpLimits(limits.follow_ups_per_message, limits.follow_ups_per_day, self.config.time_zone)

    @property
    def access(self) -> AccessPolicy:
        """Who may talk on each channel; a person at this terminal could read everything anyway."""
        config = self.config
        if self._access is None or self._access[0] is not config:
            rules = {entry.name: entry.access for entry in config.channels}
            budgets = StandingBudgets.of(config.budgets, config.time_zone)
            open_console = {"console": AccessConfig(open=True)}
            hooks = {(hook.target.channel, hook.requester(name)): hook.role for name, hook in config.hooks.items()}
            policy = AccessPolicy({**open_console, **rules}, config.team, budgets, self.follow_ups, hooks)
            self._access = config, policy
        return self._access[1]

    @property
    def models(self) -> Mapping[str, str]:
        """Name → label of every model, the lead's first; the demo if none is configured."""
        named = {settings.name: settings.label for settings in self.config.models} or {"demo": _("Built-in demo")}
        lead = self.config.roles.lead
        return {lead: named[lead], **named} if lead in named else named

    @property
    def agents(self) -> Mapping[str, str]:
        """Name → description of every named agent."""
        return {entry.name: entry.description or entry.name for entry in self.config.agents}

    async def replace(self, config: Config, agent: Agent, fetcher: WebFetcher | None = None) -> None:
        """Use these from now on. Turns that run keep the agent before it, which closes after the last of them."""
        old, self.config, self.agent, self.fetcher = getattr(self, "agent", None), config, agent, fetcher
        if old:
            agent.adopt_servers(old)
        if old and not self._uses[old]:
            await _close_agent(old)

    @asynccontextmanager
    async def use_agent(self) -> AsyncIterator[Agent]:
        """Return the agent of this moment, and keep it open until the context ends."""
        agent = self.agent
        self._uses[agent] += 1
        try:
            yield agent
        finally:
            self._uses[agent] -= 1
            if not self._uses[agent]:
                del self._uses[agent]
                if agent is not self.agent:
                    await _close_agent(agent)

    async def close(self) -> None:
        """Close the agent, after all turns."""
        await _close_agent(self.agent)


async def _close_agent(agent: Agent) -> None:
    try:
        await agent.close()
    except Exception:  # a third-party model class may raise anything, and the turn has ended already
        log.exception("agent.not_closed")
