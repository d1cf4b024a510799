"""Report the state of the service, as text for a chat and as data for `fawn status`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.base.display_names import display_name
from bot.base.version import VERSION
from bot.database.database import Database, Execute, StorageError
from bot.database.states import OutboxState
from bot.journey.scheduler import Scheduler
from bot.rights.current import Current
from bot.service.crashes import describe_crash, latest_crash
from bot.status.live_view import TurnsInProgress, describe_elsewhere, describe_turn, recent_log, turns_in_progress
from bot.status.local_checks import judge_disk
from bot.status.replica_report import find_differences, report_replicas
from bot.status.trouble import ModelReach, Trouble, TroubleTimes
from bot.storage import conversations, hooks, outbox, people
from bot.storage.jobs import count_jobs
from bot.storage.outcomes import FEEDBACK_DAYS, count_feedback
from catalogue import N_, LazyText, _, list_items, ngettext
from channels.base import Channel, Health
from sandbox.disk.quota import SandboxUse
from sandbox.engines.select import SANDBOX

if TYPE_CHECKING:  # it imports the agent stack
    from agent.models.traffic import EndpointState

START_SECONDS = 10.0  # in which a channel may not have begun to connect
CHANNEL_READY = N_("{name}: connected.")
CHANNEL_READY_AS = N_("{name}: connected as {detail}.")
CHANNEL_STANDS_BY = N_("{name}: {detail}.")
CHANNEL_DOWN = N_("{name}: not connected. {detail}")
SLOW_SECONDS = 30.0  # how long a message may wait while the service is healthy
LATE_SECONDS, MAX_LATE = 120.0, 3  # a reply that is named because it is not delivered, and so many of them
DATABASE_SECONDS = 5.0  # in which the database answers while it is healthy


class ServiceStatus:
    """The state of the service. `is_ready` and `sandbox` are set when turns can run, `http_address` if it listens."""

    def __init__(
        self,
        store: Database,
        scheduler: Scheduler,
        channels: Mapping[str, Channel],
        configured: Sequence[str],
        current: Current,
        stands_by: Callable[[str], bool] = lambda _name: False,
        waiting: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        self._store = store
        self._stands_by = stands_by  # whether another process listens to a channel
        self._scheduler = scheduler
        self._channels = channels
        self._configured = configured
        self._current = current
        self._waiting = waiting  # the rows of the outbox that are delivered when a person comes
        self._started = time.monotonic()
        self._begun = time.time()
        self._since = TroubleTimes()
        self._model_reach = ModelReach()
        self.is_ready = self.is_stopping = False
        self.http_address = ""
        self.sandbox_use = SandboxUse()
        self.sandbox = LazyText(N_("being chosen."))

    def describe(self, execute: Execute) -> str:
        """Return a few lines for a chat. The turns are those of all processes that share the database."""
        live = len(self._turns(execute))
        model = next(iter(self._current.models.values()))
        up = _format_seconds(time.monotonic() - self._started)
        running = ngettext("{n} turn running", "{n} turns running", live)
        lines = [_("Fawn {version}, up for {time}, {turns}.", version=VERSION, time=up, turns=running)]
        lines += [
            _("Model: {model}.", model=model),
            *self._describe_traffic(),
            *self._describe_sign_ins(),
            _(SANDBOX, description=self.sandbox),
        ]
        return "\n".join(lines)

    def _turns(self, execute: Execute) -> TurnsInProgress:
        return turns_in_progress(execute, self._store, self._scheduler.running_turns)

    def _describe_traffic(self) -> list[str]:
        """Return a sentence for each server of models that does not answer now, and one about scarce places."""
        lines = []
        for state in self.model_servers():
            models = list_items(state.models)
            if state.down:
                text = _(
                    "The server of {models} failed {count} times in a row. Other models answer where they can. I try it"
                    " again in {seconds} s.",
                    models=models,
                    count=state.failures,
                    seconds=state.retry_in,
                )
                lines.append(text)
            if state.paused:
                text = _(
                    "The server of {models} asked for a pause of {seconds} s.", models=models, seconds=state.paused
                )
                lines.append(text)
        slots = self._current.agent.traffic.slots if self.is_ready else None
        if slots and slots.waiting:
            lines.append(_("Model calls: {used} running, {waiting} waiting.", used=slots.used, waiting=slots.waiting))
        return lines

    def _describe_sign_ins(self) -> list[str]:
        names = self._current.agent.need_sign_in if self.is_ready else ()
        return [
            _("The MCP server “{server}” needs a sign-in: `fawn mcp login {server}`.", server=name) for name in names
        ]

    def model_servers(self) -> list[EndpointState]:
        """Return the servers of models, as they are now."""
        if not self.is_ready:
            return []
        agent = self._current.agent
        return agent.traffic.states(entry.settings for entry in agent.models.values())

    def health(self) -> Health:
        """Return READY where the agent is loaded and every configured channel is connected."""
        if not self.is_ready:
            return Health.STARTING
        states = {self._channel_state(name)["health"] for name in self._configured}
        return Health.READY if states <= {Health.READY} else Health.DOWN

    async def troubles(self) -> list[Trouble]:
        """Return what keeps the service from answering messages at this moment, with a reason each."""
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                oldest = await self._store.run(_oldest_seconds, durable=False)
        except (TimeoutError, StorageError):
            oldest = None
        disk = await asyncio.to_thread(_describe_disk, self._current.config.data_dir)
        return await self._judge(oldest, disk)

    async def _judge(self, oldest: float | None, disk: str) -> list[Trouble]:
        """Judge the parts. `oldest` is the age of the oldest queued message, None where the database is silent."""
        found: dict[str, str] = {}
        if not self.is_ready:
            found["agent"] = _("The agent is loading.")
        if self.is_stopping:  # what balances load sends requests elsewhere
            found["service"] = _("It is stopping.")
        if oldest is None:
            found["database"] = _("The database did not answer within {n:g} seconds.", n=DATABASE_SECONDS)
        elif oldest >= SLOW_SECONDS:
            found["queue"] = _("The oldest message has waited for {n:.0f} seconds.", n=oldest)
        if disk:
            found["disk"] = disk
        servers = self.model_servers()
        if servers and all(server.down for server in servers):
            found["models"] = _("No server of a model answers.")
        elif unreachable := await self._model_reach.find_trouble(self._current.config):
            found["models"] = unreachable
        return [*self._since.date(found), *self._channel_troubles()]

    def _channel_troubles(self) -> list[Trouble]:
        states = self.channel_states()
        return [
            Trouble(name, state["since"] or self._begun, state["detail"] or _("It is connecting."))
            for name, state in states.items()
            if state["health"] != Health.READY
        ]

    def operations(self) -> Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]:
        """Return the operations of the command line that only a running service has."""
        return {"status": self.report, "top": self.top, "logs": partial(recent_log, self._store)}

    async def top(self) -> dict[str, Any]:
        """Return what `fawn top` shows: the turns in progress at all processes, and the numbers of this one."""
        turns = await self._store.run(self._turns, durable=False)
        mine = [describe_turn(turn) | {"host": turns.host, "replica": turns.replica} for turn in turns.here]
        return {**await self.measure(), "turns": [*mine, *map(describe_elsewhere, turns.elsewhere)]}

    async def measure(self) -> dict[str, Any]:
        """Return the numbers that metrics show, as they are at this moment. Raises StorageError."""
        now, waiting = time.time(), self._waiting()

        def look(execute: Execute) -> dict[str, Any]:
            oldest, counts = outbox.oldest_unfinished(execute, waiting), outbox.count_unfinished(execute)
            return {
                "queue_conversations": conversations.count_unclaimed(execute),
                "queue_age_seconds": _oldest_seconds(execute),
                "outbox_rows": max(0, counts[OutboxState.NEW] + counts[OutboxState.CLAIMED] - len(waiting)),
                "outbox_waiting_rows": len(waiting),
                "outbox_age_seconds": max(0.0, now - oldest) if oldest else 0.0,
                "dead_letters": counts[OutboxState.DEAD],
                "jobs_waiting": count_jobs(execute).waiting,
            }

        use = self.sandbox_use
        return {
            **await self._store.run(look, durable=False),
            "ready": not await self.troubles(),
            "channels": {name: self._channel_state(name)["health"] == Health.READY for name in self._configured},
            "turns_live": len(self._scheduler.running_turns),
            "sandboxes_in_use": len(use.since),
            "sandbox_seconds": use.seconds,
            "sandbox_uses": use.count,
            "database_commits": self._store.commits,
            "database_units": self._store.units,
        }

    async def report(self) -> dict[str, Any]:
        """Return everything that `fawn status` shows. `healthy` is measured now, not at the start."""
        counts = await self._store.run(partial(_row_counts, waiting=self._waiting()))
        disk = await asyncio.to_thread(_describe_disk, self._current.config.data_dir)
        crash = await asyncio.to_thread(latest_crash, self._current.config.data_dir, time.time())
        troubles = await self._judge(counts["oldest"], disk)
        channels = self.channel_states()
        replicas = await self._replicas()
        return {
            "version": VERSION,
            "healthy": not troubles,
            "troubles": [each.as_json() for each in troubles],
            "disk": disk,
            "crash": describe_crash(crash) if crash else "",
            "uptime": time.monotonic() - self._started,
            "ready": self.is_ready,
            "pid": os.getpid(),
            "data_dir": str(self._current.config.data_dir),
            "config": self._current.config.source,
            "model": next(iter(self._current.models.values())),
            "model_error": self._last_model_error(),
            "model_servers": [asdict(state) for state in self.model_servers()],
            "mcp_sign_ins": self._describe_sign_ins(),
            "sandbox": _(SANDBOX, description=self.sandbox),
            "channels": channels,
            "replicas": replicas,
            "differences": find_differences(replicas),
            "hooks": await self._store.run(
                lambda execute: {name: _hook_counts(execute, name) for name in sorted(self._current.config.hooks)},
                durable=False,
            ),
            "live": len(await self._store.run(self._turns, durable=False)),
            **counts,
        }

    async def _replicas(self) -> list[dict[str, Any]]:
        """Return the processes that share the database; none where this one works alone."""
        if not self._store.is_shared:
            return []
        return await self._store.run(partial(report_replicas, me=self._store.me), durable=False)

    def _last_model_error(self) -> dict[str, Any] | None:
        models = self._current.agent.models.values() if self.is_ready else ()
        last = max(models, key=lambda model: model.trouble.at, default=None)
        if last is None or not last.trouble.at:
            return None
        age = max(0.0, time.time() - last.trouble.at)
        return {"model": last.settings.name, "text": last.trouble.text, "age": age}

    def describe_channels(self) -> dict[str, tuple[str, bool]]:
        """Return a sentence for each channel whose state is known, and whether it is connected."""
        lines = {}
        for name in self._configured:
            state = self._channel_state(name)
            is_ready, detail = state["health"] == Health.READY, state["detail"]
            starting = name not in self._channels and time.monotonic() - self._started < START_SECONDS
            if name != "console" and state["health"] != Health.STARTING and not starting:
                form = (CHANNEL_READY_AS if detail else CHANNEL_READY) if is_ready else CHANNEL_DOWN
                form = CHANNEL_STANDS_BY if self._stands_by(name) else form
                lines[name] = _(form, name=display_name(name), detail=detail), is_ready
        return lines

    def channel_states(self) -> dict[str, dict[str, Any]]:
        """Return the state of each configured channel: `health`, `since` (unix time) and `detail`."""
        return {name: self._channel_state(name) for name in self._configured}

    def _channel_state(self, name: str) -> dict[str, Any]:
        channel = self._channels.get(name)
        if self._stands_by(name):
            return {"health": Health.READY, "since": 0.0, "detail": _("another process listens")}
        if channel is None:
            return {"health": Health.DOWN, "since": 0.0, "detail": _("not connected; the log says why")}
        readiness = channel.readiness()
        return {"health": readiness.health, "since": readiness.since, "detail": readiness.detail}


def _describe_disk(data_dir: Path) -> str:
    """Return what `fawn check` says about a disk that is nearly full, "" while there is room. Blocks."""
    full = judge_disk(data_dir)
    return f"{full.text} → {full.fix}" if full else ""


def _oldest_seconds(execute: Execute) -> float:
    """Return for how long the oldest queued message has been ready, 0 where none is."""
    ready = conversations.earliest_ready(execute)
    return max(0.0, time.time() - ready) if ready else 0.0


def _hook_counts(execute: Execute, name: str) -> dict[str, Any]:
    refused = sum(row.count for row in hooks.refusals_of(execute, name))
    return {**asdict(hooks.summarize_hook(execute, name)), "refused": refused}


def _row_counts(execute: Execute, waiting: Collection[int]) -> dict[str, Any]:
    now = time.time()
    counts, oldest = outbox.count_unfinished(execute), outbox.oldest_rows(execute, waiting, MAX_LATE)
    return {
        "queued": conversations.count_unclaimed(execute),
        "oldest": _oldest_seconds(execute),
        "undelivered": max(0, counts[OutboxState.NEW] + counts[OutboxState.CLAIMED] - len(waiting)),
        "undelivered_seconds": max(0.0, now - oldest[0].created) if oldest else 0.0,
        "late": [
            {"thread": row.thread, "age": now - row.created, "error": row.error}
            for row in oldest
            if now - row.created >= LATE_SECONDS
        ],
        "waiting_for_people": len(waiting),
        "dead": counts[OutboxState.DEAD],
        "unpaired": people.count_waiting(execute, now),
        "jobs": asdict(count_jobs(execute)),
        "feedback": asdict(count_feedback(execute, now - FEEDBACK_DAYS * 86400)),
    }


def _format_seconds(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 1:
        return _("less than a minute")
    if days > 1:
        return ngettext("{n} day", "{n} days", days)
    if hours > 1:
        return ngettext("{n} hour", "{n} hours", hours)
    return ngettext("{n} minute", "{n} minutes", minutes)
