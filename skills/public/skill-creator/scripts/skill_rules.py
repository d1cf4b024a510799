"""The rules by which Fawn reads a skill: its fields, its files, and what the open format forbids."""

from __future__ import annotations

import importlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MAX_FRONT_BYTES, MAX_FRONT_DEPTH, MAX_FRONT_EVENTS = 16 << 10, 8, 1_000
MAX_SKILL_FILE_BYTES = 256 << 10
MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS, MAX_COMPATIBILITY_CHARS = 64, 1024, 500
MAX_TREE_BYTES, MAX_TREE_FILES, MAX_DEPTH, MAX_NAME_BYTES = 50 << 20, 2_000, 12, 255
FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", "__MACOSX", ".DS_Store"})
PROGRAM_MAGIC = (b"\x7fELF", b"MZ", *map(bytes.fromhex, "feedface feedfacf cefaedfe cffaedfe cafebabe".split()))  # noqa: SIM905  as one text
ADVISED_LINES = 500

FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
UNQUOTED = re.compile(r"^([A-Za-z][\w-]*):[ \t]+(?![\"'|>\[{&*!#%@`])(.*:[ \t].*|.*[ \t]#.*|.*:)$", re.MULTILINE)
FOLDER_NAME = re.compile(r"[^\W_][\w-]{0,63}")
LACKS_QUOTES = "A text with a colon or # lacks quotes."
PLAIN_FIELD = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(\S.*))?")
SCRIPT_NAME = re.compile(r"(?:scripts|references|assets)/[\w./-]*\w")


class Problem(Exception):
    """The skill cannot be used. The text says why."""


class MissingPackage(Exception):
    """A package is needed; its name."""


class Verdict(NamedTuple):
    """`problems` make a skill unusable; `warnings` are what the format forbids or a reader misses."""

    problems: list[str]
    warnings: list[str]
    facts: dict[str, Any]


def check_skill(folder: Path) -> Verdict:
    """Return all that is wrong with a folder. Raises MissingPackage for fields that need a YAML parser."""
    files, problems = list_files(folder)
    warnings: list[str] = []
    facts: dict[str, Any] = {"files": len(files), "bytes": sum(files.values())}
    path = folder / "SKILL.md"
    if not path.is_file():
        return Verdict([*problems, "There is no SKILL.md."], warnings, facts)
    try:
        if path.stat().st_size > MAX_SKILL_FILE_BYTES:
            raise Problem(f"SKILL.md is larger than {MAX_SKILL_FILE_BYTES >> 10} KB.")
        text = path.read_bytes().decode("utf-8")
        found = FRONT_MATTER.match(text)
        if not found:
            raise Problem("SKILL.md does not begin with fields between two lines of ---.")
        if len(found[1].encode()) > MAX_FRONT_BYTES:
            raise Problem(f"The fields are larger than {MAX_FRONT_BYTES >> 10} KB.")
        fields, warnings = read_fields(found[1])
    except UnicodeDecodeError:
        return Verdict([*problems, "SKILL.md is not UTF-8 text."], warnings, facts)
    except Problem as problem:
        return Verdict([*problems, str(problem)], warnings, facts)
    problems += field_problems(fields, folder.resolve().name)
    warnings += [*field_warnings(fields, folder.resolve().name), *body_warnings(text[found.end() :], folder, files)]
    entry = fields["metadata"].get("entry", "") if isinstance(fields.get("metadata"), dict) else ""
    if isinstance(entry, str) and entry and entry not in files:
        warnings.append(f"metadata.entry names {entry}, which does not exist.")
    facts |= {"name": fields.get("name", ""), "entry": entry or ("run.py" if "run.py" in files else "")}
    return Verdict(problems, warnings, facts)


def list_files(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return the files with their sizes, and what no installation takes."""
    files: dict[str, int] = {}
    problems: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted([*names, *(each for each in folders if Path(place, each).is_symlink())]):
            path = Path(place, name)
            short = path.relative_to(folder).as_posix()
            status = path.lstat()
            if name in LEFT_OUT:
                continue
            if not stat.S_ISREG(status.st_mode):
                problems.append(f"{short} is a link or a special file.")
                continue
            if len(Path(short).parts) > MAX_DEPTH or not short.isprintable() or any(char in short for char in "\\:"):
                problems.append(f"The path {short!r} is not safe.")
            if len(name.encode()) > MAX_NAME_BYTES:
                problems.append(f"The name of {short[:80]} has more than {MAX_NAME_BYTES} bytes.")
            if name.lower() == "skill.md" and Path(short).parent != Path():
                problems.append(f"It has a second skill inside, {short}.")
            with path.open("rb") as file:
                if file.read(4).startswith(PROGRAM_MAGIC):
                    problems.append(f"{short} is a compiled program.")
            files[short] = status.st_size
    if len(files) > MAX_TREE_FILES or sum(files.values()) > MAX_TREE_BYTES:
        problems.append(f"It has more than {MAX_TREE_FILES} files or {MAX_TREE_BYTES >> 20} MB.")
    return files, problems


def read_fields(front: str) -> tuple[dict[str, Any], list[str]]:
    """Return the fields and warnings; a second try quotes texts with a colon, which many skills forget.

    Raises Problem, and MissingPackage where plain texts are not all and there is no parser.
    """
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        return plain_fields(front)
    warnings: list[str] = []
    try:
        fields = load_fields(yaml, front)
    except yaml.YAMLError:
        warnings.append(LACKS_QUOTES)
        quoted = UNQUOTED.sub(lambda found: f"{found[1]}: '{found[2].replace(chr(39), chr(39) * 2)}'", front)
        try:
            fields = load_fields(yaml, quoted)
        except yaml.YAMLError as error:
            raise Problem(f"The fields are not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(fields, dict):
        raise Problem("The fields are no mapping.")
    return fields, warnings


def load_fields(yaml: Any, text: str) -> Any:
    """Count before anything is built: events come one by one. Raises Problem and YAMLError."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, yaml.BaseLoader)):
        if getattr(event, "anchor", None) is not None:
            raise Problem("The fields use anchors (&) or aliases (*): write the values out.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_FRONT_DEPTH or count > MAX_FRONT_EVENTS:
            limits = f"{MAX_FRONT_DEPTH} levels, or more than {MAX_FRONT_EVENTS}"
            raise Problem(f"The fields are nested deeper than {limits}.")
    return yaml.load(text, yaml.BaseLoader)  # it makes only texts, lists and mappings


def plain_fields(front: str) -> tuple[dict[str, Any], list[str]]:
    """Read `name: text` and one level below a name, as every skill needs; anything else needs the package."""
    fields: dict[str, Any] = {}
    warnings: list[str] = []
    inner: dict[str, Any] | None = None
    for row in front.splitlines():
        found = PLAIN_FIELD.fullmatch(row.strip())
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        value = (found[2] or "").strip() if found else ""
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" and value.count(value[0]) == 2
        odd = not quoted and (value[:1] in tuple("\"'|>[{&*!%@`") or " #" in value or "\\" in value)
        if not found or odd or (row[0] in " \t" and inner is None):
            raise MissingPackage("pyyaml")
        warnings += [LACKS_QUOTES] if ": " in value and not quoted else []
        value = value[1:-1] if quoted else value
        if row[0] in " \t" and inner is not None:
            inner[found[1]] = value
        elif value:
            fields[found[1]], inner = value, None
        else:
            fields[found[1]] = inner = {}
    return fields, warnings


def field_problems(fields: dict[str, Any], folder: str) -> Iterator[str]:
    """Yield what makes the fields unusable."""
    for name in ("name", "description"):
        if name in fields and not isinstance(fields[name], str):
            yield f"The field {name} is a list or a mapping instead of a text."
    description = fields.get("description", "")
    if isinstance(description, str) and not description.strip():
        yield "There is no description."
    name = fields.get("name", "")
    named = unicodedata.normalize("NFKC", " ".join(name.split())) if isinstance(name, str) else ""
    if not FOLDER_NAME.fullmatch(named) and not FOLDER_NAME.fullmatch(folder):
        yield "The name cannot be the name of a folder."
    metadata, allowed = fields.get("metadata"), fields.get("allowed-tools", "")
    if isinstance(metadata, dict) and not isinstance(metadata.get("entry", ""), str):
        yield "The field entry is a list or a mapping instead of a text."
    if not isinstance(allowed, str) and not (
        isinstance(allowed, list) and all(isinstance(each, str) for each in allowed)
    ):
        yield "The field allowed-tools is neither a text nor a list of texts."


def field_warnings(fields: dict[str, Any], folder: str) -> Iterator[str]:
    """Yield what the format forbids, and a description that nobody finds."""
    value = fields.get("name")
    name = unicodedata.normalize("NFKC", value.strip()) if isinstance(value, str) else ""
    if not name:
        yield "There is no name."
    else:
        if len(name) > MAX_NAME_CHARS:
            yield f"The name is longer than {MAX_NAME_CHARS} characters."
        if name != name.lower() or not all(char.isalnum() or char == "-" for char in name):
            yield "The name has other characters than lower-case letters, digits and hyphens."
        if name.startswith("-") or name.endswith("-") or "--" in name:
            yield "The name has a hyphen that is not between two words."
        if name != unicodedata.normalize("NFKC", folder):
            yield f"The name is not the name of its folder, {folder}."
    description, compatibility = fields.get("description", ""), fields.get("compatibility", "")
    if isinstance(description, str) and len(description) > MAX_DESCRIPTION_CHARS:
        yield f"The description is longer than {MAX_DESCRIPTION_CHARS} characters."
    if isinstance(description, str) and " when " not in description.lower() and "use it" not in description.lower():
        yield "The description does not say when to use it."
    if not isinstance(compatibility, str) or len(compatibility) > MAX_COMPATIBILITY_CHARS:
        yield f"compatibility is not a text of at most {MAX_COMPATIBILITY_CHARS} characters."
    if unknown := sorted(set(fields) - FIELDS):
        yield f"The format does not have the fields {', '.join(unknown)}."


def body_warnings(body: str, folder: Path, files: dict[str, int]) -> Iterator[str]:
    """Yield what a reader of the instructions would miss."""
    if len(body.splitlines()) > ADVISED_LINES:
        yield f"The instructions have more than {ADVISED_LINES} lines: move material into references/."
    if not body.strip():
        yield "There are no instructions below the fields."
    for name in sorted(set(SCRIPT_NAME.findall(body))):
        if name not in files and not (folder / name).is_dir():
            yield f"SKILL.md names {name}, which does not exist."
    for name in files:
        if not name.endswith(".py"):
            continue
        try:
            compile((folder / name).read_bytes(), name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            yield f"{name} is not Python: {error}."
