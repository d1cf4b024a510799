"""Processes on one database have the same accepted skills, whichever of them an operator spoke to."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from agent.skills import changes
from agent.skills.changes import RollBack, plan_roll_back
from agent.skills.exchange import keep_version, merge_records, pack_version, read_row
from agent.skills.library import SkillFolders, SkillLibrary, SkillState
from agent.skills.records import Pin, SkillRecords, Staged
from agent.skills.skill import SkillError
from agent.stored_json import Damaged
from bot.database.database import Database
from bot.skills.sharing import LEASE, ROW, SharedSkills
from bot.storage import shared_files
from bot.storage.leases import release_lease, take_leases

pytestmark = pytest.mark.slow
Pair = tuple[Database, Database]


@dataclass
class Process:
    """A process with folders of its own, as far as its skills go."""

    store: Database
    library: SkillLibrary
    shared: SharedSkills

    @property
    def skills(self) -> dict[str, str]:
        return {name: str(each.state) for name, each in self.library.current.skills.items()}

    def text(self, name: str = "add") -> str:
        return (self.library.view / name / "SKILL.md").read_text()


def make_process(store: Database, folder: Path) -> Process:
    folders = SkillFolders(folder / "custom", public=folder / "public")
    library = SkillLibrary(folders, folder / "data" / "skills")
    library.reload()
    return Process(store, library, SharedSkills(store, library))


@pytest.fixture
def processes(pair: Pair, tmp_path: Path) -> tuple[Process, Process]:
    one, two = (make_process(store, tmp_path / name) for name, store in zip(("one", "two"), pair, strict=True))
    return one, two


def texts(body: str, name: str = "add") -> dict[str, str]:
    return {"SKILL.md": f"---\nname: {name}\ndescription: Add numbers.\n---\n{body}\n", "run.py": "print(1)\n"}


async def stage(process: Process, body: str, name: str = "add") -> str:
    return (await process.shared.change(changes.stage_files, name, texts(body, name), "test")).hash


async def accept(process: Process, body: str, name: str = "add") -> None:
    await process.shared.change(changes.accept_change, await stage(process, body, name))


async def test_a_proposal_is_accepted_changed_rolled_back_and_removed_by_any_process(
    processes: tuple[Process, Process],
) -> None:
    one, two = processes
    digest = await stage(one, "first")
    await two.shared.change(changes.accept_change, digest)
    await one.shared.look()
    assert one.skills == two.skills == {"add": "enabled"}
    assert one.text() == two.text()
    assert "first" in one.text()
    await accept(one, "second")
    await two.shared.look()
    assert "second" in two.text()
    await two.shared.change(changes.set_enabled, "add", enabled=False)
    await one.shared.look()
    assert one.skills == {"add": "disabled"}
    await one.shared.change(changes.set_enabled, "add", enabled=True)
    assert await two.shared.change(changes.roll_back, "add")
    await one.shared.look()
    assert "first" in one.text()
    assert not await one.shared.change(changes.roll_back, "add")
    await two.shared.look()
    assert one.skills == two.skills == {}
    assert not (two.library.folders.custom / "add").exists()
    assert await one.store.run(shared_files.whole_versions) == {}, "files that no decision names are deleted"


async def test_changes_at_the_same_time_are_all_kept(processes: tuple[Process, Process]) -> None:
    names = [f"skill-{number}" for number in range(6)]
    await asyncio.gather(*(accept(processes[number % 2], "x", name) for number, name in enumerate(names)))
    for each in processes:
        await each.shared.look()
        assert each.skills == dict.fromkeys(names, "enabled")


async def test_the_command_line_and_a_process_that_was_away_lose_nothing(
    processes: tuple[Process, Process], tmp_path: Path
) -> None:
    """Both had skills before they shared a database; later one of them is changed without the database."""
    one, two = processes
    for each, name in ((one, "mine"), (two, "theirs")):
        await asyncio.to_thread(_accept_alone, each.library, "x", name)
    for each in (one, two, one):
        await each.shared.look()
    assert one.skills == two.skills == {"mine": "enabled", "theirs": "enabled"}
    changes.roll_back(two.library, "mine")  # `fawn skills` beside the service
    _accept_alone(one.library, "y", "third")
    for each in (two, one, two):
        await each.shared.look()
    assert one.skills == two.skills == {"theirs": "enabled", "third": "enabled"}
    late = make_process(two.store, tmp_path / "late")
    await late.shared.look()
    assert late.skills == one.skills


async def test_a_step_back_is_made_once_and_only_from_the_version_that_was_asked_about(
    processes: tuple[Process, Process],
) -> None:
    """Asked for where `fawn skills` has just accepted a version, and made by the process that does not have it yet."""
    one, two = processes
    await accept(one, "first")
    await two.shared.look()
    await asyncio.to_thread(_accept_alone, two.library, "second", "add")
    back = RollBack(*plan_roll_back(two.library.records(), "add"), is_repeated=False)
    early = RollBack(*plan_roll_back(one.library.records(), "add"), is_repeated=False)
    with pytest.raises(SkillError, match="has changed since then"):
        await one.shared.change(changes.roll_back, "add", back)
    await two.shared.look()
    with pytest.raises(SkillError, match="has changed since then"):
        await one.shared.change(changes.roll_back, "add", early)
    assert "second" in one.text()
    assert await one.shared.change(changes.roll_back, "add", back)
    assert "first" in one.text()
    assert await one.shared.change(changes.roll_back, "add", replace(back, is_repeated=True))
    assert "first" in one.text(), "the job ran twice"
    last = RollBack(*plan_roll_back(one.library.records(), "add"), is_repeated=False)
    assert not await two.shared.change(changes.roll_back, "add", last)
    assert not await one.shared.change(changes.roll_back, "add", replace(last, is_repeated=True))
    with pytest.raises(SkillError, match="has changed since then"):
        await one.shared.change(changes.roll_back, "add", last)


def _accept_alone(library: SkillLibrary, body: str, name: str) -> None:
    changes.accept_change(library, changes.stage_files(library, name, texts(body, name), "test").hash)


async def test_files_that_were_changed_on_a_machine_stay_and_are_disabled(processes: tuple[Process, Process]) -> None:
    one, two = processes
    await accept(one, "first")
    await two.shared.look()
    (two.library.folders.custom / "add" / "run.py").write_text("mine")
    await accept(one, "second")
    await two.shared.look()
    assert two.library.current.skills["add"].state is SkillState.CHANGED
    assert (two.library.folders.custom / "add" / "run.py").read_text() == "mine"
    shutil.rmtree(two.library.folders.custom / "add")
    await two.shared.look()
    assert two.skills == {"add": "enabled"}
    (two.library.folders.custom / "add" / "run.py").write_text("mine")
    await one.shared.change(changes.roll_back, "add")
    await one.shared.change(changes.roll_back, "add")
    await two.shared.look()
    assert two.skills == {}, "without a pin it would be enabled"


async def test_files_with_another_hash_are_not_taken(processes: tuple[Process, Process]) -> None:
    one, two = processes
    await accept(one, "first")
    [version] = await one.store.run(shared_files.whole_versions)
    (forged := two.library.data / "versions" / "add" / ("0" * 32) / "add").mkdir(parents=True)
    for name, text in texts("forged").items():
        (forged / name).write_text(text)
    content = pack_version(two.library.data, "add", "0" * 64)
    await one.store.run(
        partial(shared_files.write_part, version=version, part=0, parts=1, content=content),
    )
    await two.shared.look()
    assert two.skills == {}
    assert "has not reached this machine" in str(two.library.current.faults["custom/add"])
    with pytest.raises(SkillError, match="not those that an operator accepted"):
        keep_version(two.library.data, *version, content)
    await accept(one, "second")
    await two.shared.look()
    assert "second" in two.text()
    assert "custom/add" not in two.library.current.faults


@pytest.mark.parametrize(
    "records",
    [
        SkillRecords(pins={"../../etc": Pin("0" * 64, "x", ("0" * 64,))}),
        SkillRecords(pins={"add": Pin("../x", "x", ())}),
        SkillRecords(pins={"add": Pin("0" * 64, "x", ("/etc/passwd",))}),
        SkillRecords(staged={"0" * 64: Staged("a/b", "x", "")}),
        SkillRecords(staged={"0" * 63: Staged("add", "x", "")}),
        SkillRecords(disabled={"a/b"}),
        SkillRecords(disabled={f"skill-{number}" for number in range(501)}),
    ],
)
def test_a_row_that_names_another_path_is_refused(records: SkillRecords) -> None:
    raw = {
        "disabled": sorted(records.disabled),
        "pins": {
            name: {"hash": p.hash, "source": p.source, "versions": p.versions} for name, p in records.pins.items()
        },
        "staged": {key: {"name": s.name, "source": s.source, "base": s.base} for key, s in records.staged.items()},
    }
    with pytest.raises(Damaged):
        read_row(json.dumps(raw).encode())


async def test_a_damaged_row_changes_nothing_here(processes: tuple[Process, Process]) -> None:
    one, two = processes
    await accept(one, "first")
    await two.shared.look()
    for content in (b"{", b"[]", b'{"pins": {"add": 1}}', b"x" * (2 << 20)):
        await one.store.run(partial(shared_files.write_shared, name=ROW, content=content))
        with pytest.raises(Damaged):
            await two.shared.look()
        assert two.skills == {"add": "enabled"}


async def test_a_change_waits_for_the_lease_of_another_process(processes: tuple[Process, Process]) -> None:
    one, two = processes
    await two.store.run(partial(take_leases, me=two.store.me, names=(LEASE,)))
    task = asyncio.create_task(stage(one, "first"))
    _done, waiting = await asyncio.wait({task}, timeout=0.5)
    assert waiting
    await two.store.run(partial(release_lease, me=two.store.me, name=LEASE))
    await task


def test_both_sides_of_a_merge_count() -> None:
    pins = {name: Pin(name * 64, "x", ()) for name in "abcd"}
    known = SkillRecords({"x", "y"}, {"a": pins["a"], "b": pins["b"]})
    mine = SkillRecords({"y", "z"}, {"a": pins["a"], "c": pins["c"]})  # without b
    theirs = SkillRecords({"x", "y", "w"}, {"b": pins["b"], "d": pins["d"]})  # without a
    merged = merge_records(known, mine, theirs)
    assert merged == SkillRecords({"y", "z", "w"}, {"c": pins["c"], "d": pins["d"]})
    first = merge_records(None, SkillRecords({"z"}, {"a": pins["b"], "c": pins["c"]}), known)
    assert first == SkillRecords({"x", "y", "z"}, {**known.pins, "c": pins["c"]})
