"""Hold leases among the processes on one database, and spell the letters that they send each other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

import orjson

from agent.stored_json import Damaged, raise_damaged
from bot.database.database import Database, StorageError
from bot.database.replicas import SURE_SECONDS
from bot.database.wake_ups import Written
from bot.storage.leases import release_lease, take_leases

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class Leases:
    """The leases of this process, which `serve` takes and watches. A process that works alone needs none."""

    def __init__(self, store: Database, unsure_seconds: float = SURE_SECONDS) -> None:
        self._store = store
        self._unsure_seconds = unsure_seconds  # without an answer of the database: soon others may take what it has
        self._states: dict[str, _State] = {}  # of those that are wanted
        self._sure = time.monotonic()  # when the database has said what this process has
        self._wake = store.listen(Written.LEASE)

    @property
    def is_shared(self) -> bool:
        """Whether other processes may take leases."""
        return self._store.is_shared

    def has(self, name: str) -> bool:
        """Return whether this process has a lease."""
        return not self._store.is_shared or (name in self._states and self._states[name].held.is_set())

    def may_act(self) -> bool:
        """Return whether no other process can have taken over what this one does."""
        return self._store.lease is None or self._store.lease.is_sure

    async def run(self, name: str, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `step` while this process has the lease, and anew when it has it again. Returns, or raises, as `step`.

        The end gives the lease up: what fails here may work elsewhere.
        """
        if not self._store.is_shared:
            await step()
            return None
        state = self._states[name] = _State()
        self._wake.set()
        try:
            while True:
                await state.held.wait()
                log.info("lease.taken name=%s", name)
                work, lost = asyncio.create_task(step(), name=name), asyncio.create_task(state.lost.wait())
                try:
                    await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
                    if work.done():
                        return work.result()
                finally:
                    for task in (work, lost):
                        task.cancel()
                    await asyncio.wait({work, lost})
                log.warning("lease.lost name=%s", name)
        finally:
            del self._states[name]
            with contextlib.suppress(StorageError):  # then it ends with this process's own lease
                await self._store.run(partial(release_lease, me=self._store.me, name=name))

    async def serve(self) -> NoReturn:
        """Take leases, and notice the loss of one, until cancelled."""
        while True:
            self._wake.clear()
            if self._states:
                await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._states else None):
                    await self._wake.wait()

    async def _look(self) -> None:
        begun, held = time.monotonic(), any(state.held.is_set() for state in self._states.values())
        left = max(0.0, self._unsure_seconds - (begun - self._sure)) if held else None
        try:
            async with asyncio.timeout(left):
                mine = await self._store.run(partial(take_leases, me=self._store.me, names=tuple(self._states)))
        except (StorageError, TimeoutError) as error:
            if held and time.monotonic() - self._sure >= self._unsure_seconds:
                log.warning("lease.unsure reason=%s — the database does not answer", error)
                self._note(set())
            return
        self._sure = begun
        self._note(mine)

    def _note(self, mine: set[str]) -> None:
        for name, state in self._states.items():
            state.note(held=name in mine)


class _State:
    """Whether a lease is held, for two waiters."""

    def __init__(self) -> None:
        self.held, self.lost = asyncio.Event(), asyncio.Event()
        self.lost.set()

    def note(self, *, held: bool) -> None:
        now, before = (self.held, self.lost) if held else (self.lost, self.held)
        before.clear()
        now.set()


Json = dict[str, Any]


def dump_letter(kind: str, **content: object) -> str:
    """Return a letter of this kind."""
    return orjson.dumps({"kind": kind, **content}).decode()


def load_letter(text: str) -> Json:
    """Return the content of a letter. Raises Damaged."""
    with raise_damaged():
        found = orjson.loads(text)
    if not isinstance(found, dict):
        raise Damaged("a letter is no object")
    return found
