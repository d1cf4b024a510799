"""Put a changed configuration into force while the service runs, or refuse it and keep the old one."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from agent.messages import Message
from agent.settings.models import AgentConfigError
from bot.base.background import run_forever
from bot.base.findings import Check
from bot.base.log import set_up_logging
from bot.base.model_discovery import name_models
from bot.base.skill_library import skill_folders
from bot.config.document import ConfigFault
from bot.config.loader import ConfigError, secret_texts
from bot.config.schema import ChannelConfig, Config, LogConfig
from bot.config.source import ABOUT_THE_FILE, ConfigSource, shared_digest
from bot.database.audit import AuditEvent, AuditKind, command_line, digest, record
from bot.database.database import Database
from bot.database.replicas import note_digest
from bot.fleet.reload_elsewhere import ReloadAnswer, ReloadLetters, ReloadState, describe_elsewhere
from bot.rights.current import Current
from bot.service.agent_builder import AgentBuilder, read_pauses
from bot.service.audit_upkeep import record_config
from bot.service.channel_supervisor import Connect, connector_of
from channels.base import ChannelError, Refused

log = logging.getLogger(__name__)

CONSOLE = "console"
PROBE_SECONDS = 15.0
BUILT_ONCE = (
    "data_dir",
    "database",
    "sandbox",
    "catch_up",
    "http",
    "metrics",
    "traces",
    "encryption",
    "language",
    "library_switches",
    "systemd",
)  # sections that need a restart


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """What a reload changed, by section, and what needs a restart. With `faults` nothing has changed.

    `others` has a line for each other process on the database.
    """

    changed: Sequence[str] = ()
    not_applied: Sequence[str] = ()
    faults: Sequence[ConfigFault] = ()
    others: Sequence[str] = ()


class ConfigReloader:
    """Reads the configuration again on request. Requests of a chat are answered by `answer`; None: it failed."""

    def __init__(
        self,
        store: Database,
        current: Current,
        source: ConfigSource,
        answer: Callable[[Message, ReloadOutcome | None], Any],
        checks: Callable[[Config], Iterable[Check]],
        reconnect: Callable[[str, Connect], None],
    ) -> None:
        self._store = store
        self._current = current
        self._source = source
        self._answer = answer
        self._checks = checks
        self._reconnect = reconnect
        self._builder: AgentBuilder
        self._secrets: set[str] = set()  # of every configuration so far: running turns and channels keep theirs
        self._begun = asyncio.Event()
        self._lock = asyncio.Lock()
        self._requests: asyncio.Queue[Message | None] = asyncio.Queue()
        self._letters = ReloadLetters(store, self._reload_for_another)

    async def begin(self, builder: AgentBuilder) -> None:
        """Build the first agent. Raises AgentConfigError, also for a fault that a check of a feature finds."""
        self._builder = builder
        await self._check(self._current.config)
        await self._current.replace(self._current.config, *await builder.build(self._current.config))
        read_pauses(self._store, self._current)
        self._begun.set()

    def request(self, message: Message | None = None) -> None:
        """Reload soon, for the command `message` or (None) for a signal."""
        self._requests.put_nowait(message)

    async def serve(self) -> None:
        """Handle requests until cancelled."""
        await run_forever("reload", self._handle_request)

    async def _handle_request(self) -> None:
        message = await self._requests.get()
        outcome = None
        try:
            event = AuditEvent(AuditKind.CONFIG_CHANGED, what={"via": "signal"})
            if message:
                event = AuditEvent(AuditKind.CONFIG_CHANGED, message.thread, message.author.id)
            outcome = await self._reload_everywhere(event)
        except Exception:  # the boundary of one request
            log.exception("config.not_reloaded")
        if message:
            await self._answer(message, outcome)

    async def reload_for_command_line(self) -> dict[str, Any]:
        """Reload for `fawn reload`."""
        outcome = await self._reload_everywhere(AuditEvent(AuditKind.CONFIG_CHANGED, what=command_line()))
        return {**asdict(outcome), "faults": [fault.render() for fault in outcome.faults]}

    async def _reload_everywhere(self, event: AuditEvent) -> ReloadOutcome:
        """Reload, and have the other processes on the database reload unless this one refuses the configuration."""
        outcome = await self.reload(event)
        if outcome.faults:
            return outcome
        mine = shared_digest(self._current.config)
        others = await self._letters.ask(mine)
        for each in others:
            level = logging.INFO if each.state is ReloadState.SAME else logging.WARNING
            log.log(
                level, "config.elsewhere name=%s state=%s digest=%s here=%s", each.name, each.state, each.digest, mine
            )
        return replace(outcome, others=[describe_elsewhere(each, mine) for each in others])

    async def _reload_for_another(self) -> ReloadAnswer:
        try:
            outcome = await self.reload(AuditEvent(AuditKind.CONFIG_CHANGED, what={"via": "another process"}))
        except Exception as error:  # the boundary of one request
            log.exception("config.not_reloaded")
            return ReloadAnswer("", [type(error).__name__])
        faults = [str(fault) for fault in outcome.faults]
        return ReloadAnswer(shared_digest(self._current.config), faults, outcome.not_applied)

    async def reload(self, event: AuditEvent) -> ReloadOutcome:
        """Read the configuration and put it into force, with `event` in the audit. During a start, wait for its end."""
        await self._begun.wait()
        async with self._lock:
            outcome = await self._reload(event)
        for fault in outcome.faults:
            log.warning("config.refused fault=%s", fault)
        if not outcome.faults:
            changed, not_applied = (",".join(names) or "-" for names in (outcome.changed, outcome.not_applied))
            log.info("config.reloaded changed=%s not_applied=%s", changed, not_applied)
        return outcome

    async def _reload(self, event: AuditEvent) -> ReloadOutcome:
        old = self._current.config
        try:
            read = await asyncio.to_thread(self._source.read)
        except ConfigError as error:
            return ReloadOutcome(faults=error.faults)
        config, not_applied = merge_configs(old, replace(read, models=await name_models(read.models)))
        self._use_log(old.log, old, read)
        entries = changed_channels(old, config)
        if refused := [fault for fault in await asyncio.gather(*map(_probe, entries)) if fault]:
            return ReloadOutcome(faults=refused)
        try:
            await self._check(config)
            agent, fetcher = await self._builder.build(config)
        except AgentConfigError as error:
            return ReloadOutcome(faults=read.faults_of(error))
        changed = list_changes(old, config)
        if agent.prompt != self._current.agent.prompt and "prompt" not in changed:  # the text of its file
            changed.append("prompt")
        event = replace(event, what={**event.what, "changed": ",".join(changed)})
        await self._store.run(partial(record_config, config=config, event=event))
        if self._store.is_shared:
            await self._store.run(partial(note_digest, id=self._store.me, digest=shared_digest(config)))
        if old.budgets != config.budgets:
            budgets = replace(event, kind=AuditKind.BUDGET_CHANGED, what={"budgets": digest(repr(config.budgets))})
            await self._store.run(partial(record, event=budgets))
        if library := self._current.skills:
            library.folders = skill_folders(config)
        self._use_log(config.log, config)
        await self._current.replace(config, agent, fetcher)
        for entry in entries:
            self._reconnect(entry.name, connector_of(entry))
        return ReloadOutcome(changed, not_applied)

    async def _check(self, config: Config) -> None:
        """Run the checks of the features for a start; log their notes. Raises AgentConfigError for faults."""
        checks = [check for check in self._checks(config) if check.at_start]
        found = [finding for each in await asyncio.gather(*(check.findings() for check in checks)) for finding in each]
        for finding in found:
            if finding.state == "note":
                log.warning("config.note subject=%s what=%s fix=%s", finding.subject, finding.text, finding.fix)
        if faults := [AgentConfigError((each.subject,), each.text, each.fix) for each in found if not each.ok]:
            raise AgentConfigError(faults[0].place, faults[0].wrong, faults[0].fix, faults[1:])

    def _use_log(self, settings: LogConfig, *configs: Config) -> None:
        """Log with these settings, without the secrets of these configurations and of those before."""
        self._secrets.update(*map(secret_texts, configs))
        set_up_logging(settings, self._secrets, self._source.log_file)


def merge_configs(old: Config, new: Config) -> tuple[Config, list[str]]:
    """Return the new configuration with the old values of what is built once, and the names of what needs a restart."""
    needs_restart = [name for name in BUILT_ONCE if getattr(old, name) != getattr(new, name)]
    before, after = ({entry.name: entry for entry in config.channels} for config in (old, new))
    there_in_one = {*before} ^ {*after}
    needs_restart += [
        f"channels.{name}"
        for name in sorted({*before, *after})
        if name in there_in_one or _is_rebuilt(before, after, name)
    ]
    channels = tuple(_merged_channel(entry, after.get(entry.name)) for entry in old.channels)
    kept = {name: getattr(old, name) for name in BUILT_ONCE}
    return replace(new, **kept, channels=channels, variables=old.variables | new.variables), needs_restart


def _is_rebuilt(before: dict[str, ChannelConfig], after: dict[str, ChannelConfig], name: str) -> bool:
    """Whether a channel that is in both has changed in what only a start builds: the console, or other code."""
    old, new = before[name], after[name]
    return old.use != new.use or (name == CONSOLE and old.settings != new.settings)


def _merged_channel(old: ChannelConfig, new: ChannelConfig | None) -> ChannelConfig:
    """Return a channel as it is in force: with the new settings, unless only a start builds it."""
    if new is None:
        return old
    is_kept = old.use != new.use or old.name == CONSOLE
    return replace(old, access=new.access) if is_kept else new


def changed_channels(old: Config, new: Config) -> list[ChannelConfig]:
    """Return the channels that have other settings, such as a token: they are connected anew."""
    before = {entry.name: entry for entry in old.channels}
    return [entry for entry in new.channels if before[entry.name].settings != entry.settings]


async def _probe(entry: ChannelConfig) -> ConfigFault | None:
    """Return the fault of a channel whose new settings the platform refuses; other troubles end by themselves."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await importlib.import_module(entry.module).probe(entry.settings)
    except Refused as error:
        return ConfigFault("", 0, f"channels.{entry.name}", str(error))
    except (ChannelError, OSError) as error:  # a TimeoutError is an OSError
        log.warning("channel.not_probed name=%s reason=%s", entry.name, error or type(error).__name__)
    return None


def list_changes(old: Config, new: Config) -> list[str]:
    """Return the names of the sections that differ."""
    names = [field.name for field in fields(Config) if field.name not in ABOUT_THE_FILE]
    changed = [name for name in names if name != "channels" and getattr(old, name) != getattr(new, name)]
    if [entry.access for entry in old.channels] != [entry.access for entry in new.channels]:
        changed.append("access")
    return [*changed, *(f"channels.{entry.name}" for entry in changed_channels(old, new))]
