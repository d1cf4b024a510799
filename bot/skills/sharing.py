"""Share operators' decisions about skills, and the files of the versions they name, with the other processes.

The decisions are one row of `shared_files`, the versions are in `skill_versions`. A change is made under a lease, after
what others have decided, and is theirs before the lease ends. Each process also looks every 5 seconds, and when another
one says that it has changed something: for changes by `fawn skills` here, and by anybody elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from agent.skills import exchange
from agent.skills.exchange import CommonDecisions
from agent.skills.library import SkillLibrary
from agent.skills.records import SkillRecords, named_versions
from agent.skills.skill import SkillError
from bot.base.background import run_forever
from bot.database.database import Database, Execute
from bot.service.shared_files import LOOK_SECONDS, hold_lease
from bot.storage import shared_files
from bot.storage.shared_files import Version
from sandbox.disk.file_threads import run_file_work

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

ROW = "skills/skills.json"
LEASE = TOPIC = "skills"
PART_BYTES = 1 << 20
MAX_TRIES = 5  # while `fawn skills` changes the same files
FIRST_LOOK_SECONDS = 10.0  # for which a turn waits after a start


class SharedSkills:
    """The skills of this process, of which there is one. A process that works alone shares nothing."""

    def __init__(self, store: Database, library: SkillLibrary, seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self.library = library
        self._seconds = seconds
        self._changing = asyncio.Lock()  # the lease is the process's
        self._told = asyncio.Event()
        self._looked = asyncio.Event()
        self._given_up: tuple[int, list[Version]] = (0, [])  # what the row of this number names, and nobody has
        store.read_letters(TOPIC, lambda _sender, _text: self._told.set())

    async def change(self, work: Callable[Concatenate[SkillLibrary, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a change in a thread, after what others have decided, and have them decide the same. Raises as `work`.

        Raises StorageError and OSError, too, where the others cannot be told.
        """
        if not self._store.is_shared:
            return await run_file_work(work, self.library, *args, **kwargs)
        async with self._held():
            await self._settle()
            result = await run_file_work(work, self.library, *args, **kwargs)
            await self._settle()
        return result

    async def wait_for_first_look(self) -> None:
        """Wait until this process has had the decisions of the others once, or cannot have them."""
        if self._store.is_shared and not self._looked.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOK_SECONDS):
                    await self._looked.wait()

    async def follow(self) -> None:
        """Take over what others decide, and give them what is decided here, until cancelled."""
        if self._store.is_shared:
            await run_forever("skills of others", self._look)

    async def _look(self) -> None:
        self._told.clear()
        try:
            await self.look()
        finally:
            self._looked.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._told.wait()

    async def look(self) -> None:
        """Have the decisions that the others have, if something differs. Raises StorageError and OSError."""
        version = await self._store.run(partial(shared_files.read_version, name=ROW), durable=False)
        if await run_file_work(self._differs, version):
            async with self._held():
                await self._settle()

    async def answer_look(self) -> dict[str, bool]:
        """Look for `fawn skills` on this machine, which says whether the others have what it changed."""
        if self._store.is_shared:
            await self.look()
        return {"shared": True}

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        async with self._changing, hold_lease(self._store, LEASE):
            yield

    def _differs(self, version: int) -> bool:
        """Return whether something was decided here, or elsewhere, or whether accepted files are missing."""
        mine, known = self.library.records(), exchange.read_known(self.library.data)
        if known is None:
            return bool(version) or mine != SkillRecords()
        if (known.version, known.records) != (version, mine):
            return True
        lacking = exchange.find_lacking(self.library, mine)
        return bool(lacking) and self._given_up != (version, lacking)

    async def _settle(self) -> None:
        """Merge the decisions of this process with those of the others, for both. The caller holds the lease."""
        row = await self._store.run(partial(shared_files.read_shared, name=ROW), durable=False)
        theirs = exchange.read_row(row.content) if row and row.content is not None else SkillRecords()
        for _ in range(MAX_TRIES):
            mine, known = await run_file_work(self._read_local)
            wanted = exchange.merge_records(known.records if known and row else None, mine, theirs)
            await self._fetch(wanted)
            if await run_file_work(exchange.apply_records, self.library, mine, wanted):
                break
        else:
            raise OSError("the skills were changed by another program again and again")
        version = row.version if row else 0
        if wanted != theirs:
            version = await self._give(wanted)
        await run_file_work(exchange.write_known, self.library.data, CommonDecisions(version, wanted))
        self._given_up = version, await run_file_work(exchange.find_lacking, self.library, wanted)

    def _read_local(self) -> tuple[SkillRecords, CommonDecisions | None]:
        return self.library.records(), exchange.read_known(self.library.data)

    async def _give(self, wanted: SkillRecords) -> int:
        """Store the decisions for the others, after the versions that they name, and return the row's number."""
        content, named = exchange.spell_records(wanted), named_versions(wanted)
        whole = await self._store.run(shared_files.whole_versions, durable=False)
        for version in sorted(named - whole.keys()):
            await self._upload(version)

        def write(execute: Execute) -> int:
            shared_files.delete_other_versions(execute, named)
            return shared_files.write_shared(execute, ROW, content)

        number = await self._store.run(write)
        self._store.send(TOPIC, str(number))
        log.info("skills.shared version=%d count=%d", number, len(wanted.pins))
        return number

    async def _upload(self, version: Version) -> None:
        if not await run_file_work(exchange.has_version, self.library.data, *version):
            return
        try:
            archive = await run_file_work(exchange.pack_version, self.library.data, *version)
        except SkillError as error:  # it stays on this machine; the others say that they lack it
            log.warning("skill.not_shared name=%s reason=%s", version[0], error)
            return
        parts = [archive[at : at + PART_BYTES] for at in range(0, len(archive), PART_BYTES)]
        for number, content in enumerate(parts):
            await self._store.run(
                partial(shared_files.write_part, version=version, part=number, parts=len(parts), content=content)
            )

    async def _fetch(self, wanted: SkillRecords) -> None:
        """Keep the versions that another process has stored and this one lacks."""
        data = self.library.data
        if not (missing := await run_file_work(exchange.missing_versions, data, wanted)):
            return
        whole = await self._store.run(shared_files.whole_versions, durable=False)
        for version in missing:
            if (parts := whole.get(version, 0)) and parts * PART_BYTES <= exchange.MAX_ARCHIVE_BYTES + PART_BYTES:
                try:
                    archive = await self._download(version, parts)
                    await run_file_work(exchange.keep_version, data, *version, archive)
                except SkillError as error:
                    log.error("skill.not_taken name=%s hash=%s reason=%s", *version, error)  # noqa: TRY400 — enough
            else:
                log.warning("skill.nobody_has_it name=%s hash=%s", *version)

    async def _download(self, version: Version, parts: int) -> bytes:
        archive = bytearray()
        for part in range(parts):
            archive += await self._store.run(partial(shared_files.read_part, version=version, part=part), durable=False)
        return bytes(archive)
