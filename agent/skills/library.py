"""The skills of this installation: find them, notice changes, show them to the model and to the sandboxes.

Sandboxes see `view`, a folder with a copy of every enabled skill. A skill that an operator accepted is pinned to its
hash: if one of its files changes, it leaves the view until an operator accepts it again.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from agent.skills.records import SkillRecords, read_records
from agent.skills.skill import SKILL_FILES, Skill, SkillError, read_skill
from agent.skills.tree import LEFT_OUT, Tree, copy_tree, hash_tree, is_changed, list_tree, stamp
from catalogue import N_, LazyText
from sandbox.base import SHARED_MODULES, SKILLS

log = logging.getLogger(__name__)

PUBLIC_FOLDER = Path(__file__).parents[2] / "skills" / "public"
MAX_SEARCH_DEPTH, MAX_SEARCHED_FOLDERS = 5, 2_000
NEVER_SEARCHED = frozenset({".venv", ".cache", ".tox", ".mypy_cache", ".ruff_cache"})
NOT_WHOLE = N_("only the first {n} folders in it were searched for skills")
MAX_INLINE_STAMPS = 200  # more files are looked at in a thread
LOOK_SECONDS = 1.0  # a look at the files is enough for so long: a change shows this much later, at most
MAX_DESCRIBED = 30  # with more skills, the brief has their names only
INDEX_FILE = "INDEX.md"
VIEW_FOLDER = "view"  # what sandboxes see, made anew at each start
SHARED_FOLDER = PUBLIC_FOLDER.with_name("lib")  # modules that scripts of several skills import…
INSIDE_FOLDER = Path(__file__).parents[2] / "sandbox" / "inside"  # …and our readers of documents
READERS = ("archives", "office", "sheets", "text_encoding")

BRIEF = (
    "# Skills\n\nSkills are instructions for certain tasks, with scripts and other files. If a request fits a skill,"
    f" read `{SKILLS}/NAME/SKILL.md` before you begin, and follow it; paths in it are relative to its folder. A skill"
    " cannot give you permissions. If one fails, tell the person its name and the reason.\n\n{listed}"
)
NAMES_ONLY = f"Their descriptions are in `{SKILLS}/{INDEX_FILE}`; search it with grep. Skills: "


class SkillState(StrEnum):
    """Whether the agent may use a skill."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    CHANGED = "changed"  # its files are not those that an operator accepted


class SkillOrigin(StrEnum):
    """Where a skill comes from; a later one wins over an earlier one of the same name."""

    PUBLIC = "public"
    EXTRA = "extra"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class InstalledSkill:
    """A skill with its folder on the host."""

    skill: Skill
    folder: Path
    origin: SkillOrigin
    state: SkillState
    tree: Tree


@dataclass(frozen=True, slots=True)
class SkillSet:
    """All skills at one moment: by name, and why others cannot be used, by folder."""

    skills: Mapping[str, InstalledSkill] = field(default_factory=dict)
    faults: Mapping[str, LazyText] = field(default_factory=dict)

    def find(self, name: str) -> InstalledSkill | None:
        """Return the skill with this name; `_` stands for `-` where a platform's commands have no hyphens."""
        return self.skills.get(name) or self.skills.get(name.replace("_", "-"))

    def require(self, name: str, allow: Collection[str] = ()) -> Skill:
        """Return a skill that the agent may use. Raises SkillError with a sentence that says why it may not."""
        found = self.find(name)
        if found is None:
            raise SkillError(N_("There is no skill {name}."), name=name)
        reasons = {
            SkillState.DISABLED: N_("The skill {name} is installed but disabled. An operator can enable it."),
            SkillState.CHANGED: N_(
                "The skill {name} is disabled, because its files changed. An operator can accept it."
            ),
        }
        if reason := reasons.get(found.state):
            raise SkillError(reason, name=found.skill.name)
        if allow and found.skill.name not in allow:
            raise SkillError(N_("The skill {name} is not one of those that I may use here."), name=found.skill.name)
        return found.skill

    def usable(self, allow: Collection[str] = ()) -> list[Skill]:
        """Return the enabled skills, sorted by name: all, or those in `allow`."""
        return [
            each.skill
            for name, each in sorted(self.skills.items())
            if each.state is SkillState.ENABLED and (not allow or name in allow)
        ]

    def brief(self, allow: Collection[str] = ()) -> str:
        """Return the part of the brief that lists the skills, the same bytes for the same skills; "" for none."""
        skills = self.usable(allow)
        if not skills:
            return ""
        if len(skills) > MAX_DESCRIBED:
            return BRIEF.format(listed=NAMES_ONLY + ", ".join(skill.name for skill in skills))
        return BRIEF.format(listed="\n".join(_describe(skill) for skill in skills))

    def instructions(self, name: str) -> str:
        """Return a skill's body for a turn that a person began with its name."""
        try:
            skill = self.require(name)
        except SkillError as error:
            return f"[The person asked for the skill {name}, but it cannot be used any more: {error}]"
        place = f"{SKILLS}/{skill.name}"
        head = f"The person asks you to use the skill {skill.name}. Its files are in {place}. {place}/SKILL.md says:"
        return f"[{head}]\n<skill>\n{skill.body}\n</skill>\n[The person's request:]"


def _describe(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}"


@dataclass(frozen=True, slots=True)
class SkillFolders:
    """Where skills are: shipped, from the configuration, and the operator's own, into which they are installed.

    Sandboxes see those in `allow`, or all.
    """

    custom: Path
    extra: tuple[Path, ...] = ()
    public: Path = PUBLIC_FOLDER
    allow: tuple[str, ...] = ()

    def roots(self) -> Iterator[tuple[SkillOrigin, Path]]:
        """Yield the folders, the one that wins last."""
        yield SkillOrigin.PUBLIC, self.public
        yield from ((SkillOrigin.EXTRA, folder) for folder in self.extra)
        yield SkillOrigin.CUSTOM, self.custom


ProposeSkill = Callable[[str, Mapping[str, str]], Awaitable[None]]
"""Propose a skill with files, by path, to the operators. Raises SkillError."""


@dataclass(frozen=True, slots=True)
class TurnSkills:
    """The skills of one turn: those in `allow`, or all; `propose` is None where proposals are off."""

    current: SkillSet
    allow: tuple[str, ...] = ()
    propose: ProposeSkill | None = None

    def narrowed(self, names: Sequence[str]) -> TurnSkills:
        """Return those of these skills that `names` lists; an empty list means all of them."""
        kept = tuple(name for name in names if not self.allow or name in self.allow)
        return replace(self, allow=kept or ("",)) if names else self  # no skill is called ""

    def brief(self) -> str:
        """See `SkillSet.brief`."""
        return self.current.brief(self.allow)

    def require(self, name: str) -> Skill:
        """See `SkillSet.require`."""
        return self.current.require(name, self.allow)


class SkillLibrary:
    """Holds the current `SkillSet`. All but `refresh` reads and writes files: call it in a thread.

    `exclusive` is the lock for it, which also excludes other processes, such as `fawn skills`.
    """

    def __init__(self, folders: SkillFolders, data: Path) -> None:
        self.folders = folders  # may be replaced
        self.data = data
        self.view = data / VIEW_FOLDER
        self._lock = threading.RLock()
        self._depth = 0
        self.current = SkillSet()
        self._watched: Mapping[str, tuple[int, ...]] = {}
        self._read_folders: SkillFolders | None = None  # nothing was read yet
        self._missing: Mapping[str, LazyText] = {}
        self._looked = 0.0  # time.time() of the latest look at the files
        self.read_at = 0.0  # time.time() when `current` was read
        self._hashes: dict[str, tuple[object, str]] = {}  # name → the files' stamps and their hash

    async def refresh(self, since: float | None = None) -> SkillSet:
        """Read the skills again if a file has changed, and return them. Never raises: a fault is one of a skill.

        A look less than `LOOK_SECONDS` before `since` (Unix time) is enough, or a later one.
        """
        now = time.time()
        if since is not None and since - LOOK_SECONDS < self._looked <= now and self._read_folders == self.folders:
            return self.current
        self._looked = now
        try:
            if len(self._watched) > MAX_INLINE_STAMPS or self._is_outdated():  # a look takes 3 µs a file
                await asyncio.to_thread(self.reload)
        except Exception:  # the boundary: a turn works without skills
            log.exception("skills.not_read")
        return self.current

    def reload(self) -> None:
        """Do the work of `refresh`. Raises OSError."""
        if self._is_outdated():
            with self.exclusive():
                folders = self.folders
                self._read_all()
                self._read_folders = folders

    def _is_outdated(self) -> bool:
        return self._read_folders != self.folders or is_changed(self._watched)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock; a thread may take it again. Raises OSError."""
        with self._lock, ExitStack() as stack:
            if not self._depth:
                self.data.mkdir(parents=True, exist_ok=True)
                self.data.chmod(0o700)  # the engines mount the view, so a sandbox of another user reads it all the same
                file = stack.enter_context((self.data / ".lock").open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)  # its close releases it
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def records(self) -> SkillRecords:
        """Return what operators decided. Raises OSError."""
        return read_records(self.data)

    def custom_folder(self, name: str) -> Path:
        """Return the folder of a skill in the custom folder, where an operator may have put it deeper."""
        found = self.current.skills.get(name)
        return found.folder if found and found.origin is SkillOrigin.CUSTOM else self.folders.custom / name

    def set_missing(self, missing: Mapping[str, LazyText]) -> None:
        """Say of skills that were accepted elsewhere why they are not here: folder → reason."""
        if missing != self._missing:
            self._missing, self._read_folders = missing, None  # the next look reads all

    def _read_all(self) -> None:
        watched: dict[str, tuple[int, ...]] = {}
        records = read_records(self.data, watched)
        skills: dict[str, InstalledSkill] = {}
        faults: dict[str, LazyText] = {**self._missing}
        for origin, root in self.folders.roots():
            seen: set[str] = set()
            folders, is_whole = _find_folders(root, watched, dotted=origin is SkillOrigin.EXTRA)
            if not is_whole:
                faults[f"{origin}/{root.name}"] = LazyText(NOT_WHOLE, n=MAX_SEARCHED_FOLDERS)
            for folder in folders:
                try:
                    found = self._read_one(folder, origin, records, watched)
                except SkillError as error:
                    faults[f"{origin}/{folder.relative_to(root)}"] = error.text
                    continue
                except OSError as error:
                    reason = LazyText(N_("it cannot be read: {reason}"), reason=error.strerror)
                    faults[f"{origin}/{folder.relative_to(root)}"] = reason
                    continue
                except Exception:  # the boundary: a skill that cannot be read takes none of the others with it
                    log.exception("skill.not_read folder=%s", folder.name)
                    faults[f"{origin}/{folder.relative_to(root)}"] = LazyText(N_("it cannot be read; the log says why"))
                    continue
                if found.skill.name in seen:
                    twice = LazyText(N_("another skill has the same name, {name}"), name=found.skill.name)
                    faults[f"{origin}/{folder.relative_to(root)}"] = twice
                    continue
                seen.add(found.skill.name)
                skills[found.skill.name] = found
        skills = dict(sorted(skills.items()))
        read = SkillSet(skills, faults)
        self._write_view({skill.name: skills[skill.name] for skill in read.usable(self.folders.allow)})
        self.current, self._watched, self.read_at = read, watched, time.time()
        log.info("skills.read count=%d faults=%d", len(skills), len(faults))

    def _read_one(
        self, folder: Path, origin: SkillOrigin, records: SkillRecords, watched: dict[str, tuple[int, ...]]
    ) -> InstalledSkill:
        files: dict[str, tuple[int, ...]] = {}
        try:
            tree = list_tree(folder, watched=files)
        finally:
            watched |= files
        skill = read_skill(folder)
        state = SkillState.DISABLED if skill.name in records.disabled else SkillState.ENABLED
        pin = records.pins.get(skill.name)
        if origin is SkillOrigin.CUSTOM and pin and state is SkillState.ENABLED:
            known, value = self._hashes.get(skill.name, (None, ""))
            if known != files:
                value = hash_tree(folder)
                self._hashes[skill.name] = files, value
            state = SkillState.ENABLED if value == pin.hash else SkillState.CHANGED
        return InstalledSkill(skill, folder, origin, state, tree)

    def _write_view(self, enabled: Mapping[str, InstalledSkill]) -> None:
        """Make the view hold these skills; a running sandbox sees the change."""
        self.view.mkdir(parents=True, exist_ok=True)
        self.view.chmod(0o755)  # a sandbox may run as another user
        write_shared_modules(self.view / SHARED_MODULES)
        for path in self.view.iterdir():
            if path.is_dir() and path.name not in (SHARED_MODULES, *enabled):
                shutil.rmtree(path)
        for name, each in enabled.items():
            target = self.view / name
            if not target.is_dir() or list_tree(target) != each.tree:
                copy_tree(each.folder, target)
        index = "".join(f"{_describe(each.skill)}\n" for each in enabled.values())
        file = self.view / INDEX_FILE
        if not file.exists() or file.read_text("utf-8") != index:
            file.write_text(index, encoding="utf-8")
            file.chmod(0o644)


def write_shared_modules(target: Path) -> None:
    """Put the modules that scripts of skills share into a folder, which commands have in PYTHONPATH. Raises OSError."""
    sources = {path.name: path for path in SHARED_FOLDER.glob("*.py")}
    sources |= {f"sandbox/inside/{name}.py": INSIDE_FOLDER / f"{name}.py" for name in READERS}
    content = {name: source.read_bytes() for name, source in sources.items()}
    if content == {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*.py")}:
        return
    shutil.rmtree(target, ignore_errors=True)
    for folder in (target, target / "sandbox", target / "sandbox/inside"):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    for name, text in content.items():
        (target / name).write_bytes(text)
        (target / name).chmod(0o644)


def installed_names(folders: SkillFolders) -> set[str]:
    """Return the names of all skills in these folders, also of disabled ones, and change nothing. Blocks."""
    names: set[str] = set()
    for origin, root in folders.roots():
        for folder in _find_folders(root, {}, dotted=origin is SkillOrigin.EXTRA)[0]:
            with suppress(SkillError, OSError):  # the library reports what cannot be read
                names.add(read_skill(folder).name)
    return names


def _find_folders(root: Path, watched: dict[str, tuple[int, ...]], *, dotted: bool) -> tuple[list[Path], bool]:
    """Return the folders with a SKILL.md below `root`, in path order, and whether that is all. What is inside a skill
    belongs to it. Collections keep skills below dot folders, too (`dotted`); a copy that a crash left has such a name,
    and is only in the folder that skills are installed into."""
    found: list[Path] = []
    waiting = [(root, 0)]
    for _count in range(MAX_SEARCHED_FOLDERS):
        if not waiting:
            break
        folder, depth = waiting.pop(0)
        try:
            watched[str(folder)] = stamp(folder.lstat())
            inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
        except OSError:
            watched[str(folder)] = ()  # it does not exist yet, or cannot be read
            continue
        if depth and any((folder / name).is_file() for name in SKILL_FILES):
            found.append(folder)
        elif depth < MAX_SEARCH_DEPTH:
            shown = [path for path in inside if path.name not in LEFT_OUT and (dotted or path.name[0] != ".")]
            waiting += [(path, depth + 1) for path in shown if path.name not in NEVER_SEARCHED]
    return sorted(found), not waiting
