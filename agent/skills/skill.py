"""Read one skill: a folder with a SKILL.md, which is YAML between `---` lines and then Markdown.

Reading is lenient, as the format's guide for clients asks (https://agentskills.io/specification): what the
specification forbids is a warning. `validate_fields` has the same verdict as the reference validator, skills-ref 0.1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from catalogue import N_, LazyText, LocalizedError

MAX_SKILL_FILE_BYTES = 256 << 10  # of a SKILL.md; the specification advises 500 lines
MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS, MAX_COMPATIBILITY_CHARS = 64, 1024, 500
SKILL_FILES = ("SKILL.md", "skill.md")
ENTRY_FILE = "run.py"
FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_UNQUOTED = re.compile(r"^([A-Za-z][\w-]*):[ \t]+(?![\"'|>\[{&*!#%@`])(.*:[ \t].*|.*[ \t]#.*|.*:)$", re.MULTILINE)
_FOLDER_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar stays a string, as for the reference validator


class SkillError(LocalizedError):
    """A skill cannot be used or changed; the text says why."""


@dataclass(frozen=True, slots=True)
class Skill:
    """What a SKILL.md says. `allowed_tools` is a wish of its author: it grants nothing.

    `entry` is the program that takes JSON and returns JSON, relative to the folder; "": none.
    """

    name: str
    description: str
    body: str
    allowed_tools: tuple[str, ...] = ()
    entry: str = ""
    warnings: tuple[LazyText, ...] = ()


def read_skill(folder: Path) -> Skill:
    """Read the skill in this folder. Raises SkillError only for what makes it unusable."""
    try:
        file = next(path for name in SKILL_FILES if (path := folder / name).is_file())
        if file.stat().st_size > MAX_SKILL_FILE_BYTES:
            raise SkillError(N_("its SKILL.md is larger than {limit} KB"), limit=MAX_SKILL_FILE_BYTES >> 10)
        text = file.read_text(encoding="utf-8")
    except StopIteration:
        raise SkillError(N_("it has no SKILL.md")) from None
    except UnicodeDecodeError:
        raise SkillError(N_("its SKILL.md is not UTF-8 text")) from None
    except OSError as error:
        raise SkillError(N_("its SKILL.md cannot be read: {reason}"), reason=error.strerror) from error
    found = _FRONT_MATTER.match(text)
    if not found:
        raise SkillError(N_("its SKILL.md does not begin with fields between two lines of ---"))
    fields, warnings = _parse_fields(found[1])
    description = _one_line(fields.get("description"))
    if not description:
        raise SkillError(N_("it has no description"))
    warnings += validate_fields(fields, folder.name)
    name = unicodedata.normalize("NFKC", _one_line(fields.get("name")))
    name = next((each for each in (name, folder.name) if _FOLDER_NAME.fullmatch(each)), "")
    if not name:
        raise SkillError(N_("its name cannot be the name of a folder"))
    metadata = fields.get("metadata")
    entry = _one_line(metadata.get("entry")) if isinstance(metadata, dict) else ""
    return Skill(
        name,
        description[:MAX_DESCRIPTION_CHARS],
        text[found.end() :].strip(),
        split_allowed_tools(fields.get("allowed-tools")),
        entry or (ENTRY_FILE if (folder / ENTRY_FILE).is_file() else ""),
        tuple(warnings),
    )


def validate_fields(fields: Mapping[str, Any], folder: str) -> list[LazyText]:
    """Return what the specification forbids."""
    return [*_validate_name(fields.get("name"), folder), *_validate_others(fields)]


def _validate_name(value: object, folder: str) -> Iterator[LazyText]:
    if not isinstance(value, str) or not value.strip():
        yield LazyText(N_("it has no name"))
        return
    name = unicodedata.normalize("NFKC", value.strip())
    if len(name) > MAX_NAME_CHARS:
        yield LazyText(N_("its name is longer than {limit} characters"), limit=MAX_NAME_CHARS)
    if name != name.lower() or not all(char.isalnum() or char == "-" for char in name):
        yield LazyText(N_("its name has other characters than lower-case letters, digits and hyphens"))
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield LazyText(N_("its name has a hyphen that is not between two words"))
    if name != unicodedata.normalize("NFKC", folder):
        yield LazyText(N_("its name is not the name of its folder, {folder}"), folder=folder)


def _validate_others(fields: Mapping[str, Any]) -> Iterator[LazyText]:
    description = fields.get("description")
    if not isinstance(description, str) or len(description) > MAX_DESCRIPTION_CHARS:
        yield LazyText(N_("its description is longer than {limit} characters"), limit=MAX_DESCRIPTION_CHARS)
    compatibility = fields.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > MAX_COMPATIBILITY_CHARS:
        text = N_("its compatibility is not a text of at most {limit} characters")
        yield LazyText(text, limit=MAX_COMPATIBILITY_CHARS)
    if unknown := sorted(set(fields) - FIELDS):
        yield LazyText(N_("the format does not have its fields {fields}"), fields=unknown)


def split_allowed_tools(value: object) -> tuple[str, ...]:
    """Split `Bash(git:*) Read`, `Read, Grep` or a list. Blanks between brackets belong to the pattern."""
    if isinstance(value, list):
        return tuple(text for item in value if (text := str(item).strip()))
    return tuple(re.findall(r"[^\s,(]+(?:\([^)]*\))?", str(value or "")))


def _parse_fields(front: str) -> tuple[dict[str, Any], list[LazyText]]:
    """Parse the YAML; a second try quotes the texts that contain a colon, which many skills forget."""
    warnings: list[LazyText] = []
    try:
        node, fields = _load_yaml(front)
    except yaml.YAMLError:
        warnings.append(LazyText(N_("a text with a colon or # lacks quotes")))
        quoted = _UNQUOTED.sub(lambda found: f"{found[1]}: '{found[2].replace(chr(39), chr(39) * 2)}'", front)
        try:
            node, fields = _load_yaml(quoted)
        except yaml.YAMLError as error:
            raise SkillError(N_("the fields of its SKILL.md are not YAML: {reason}"), reason=_one_line(error)) from None
    if not isinstance(fields, dict):
        raise SkillError(N_("the fields of its SKILL.md are not YAML: {reason}"), reason=LazyText(N_("no mapping")))
    if _is_beyond_strict(node):
        warnings.append(LazyText(N_("its fields use YAML that the format's validator refuses, such as [a, b]")))
    return {str(key): value for key, value in fields.items()}, warnings


def _load_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the syntax tree and the value. The loader makes only texts, lists and mappings."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def _is_beyond_strict(node: yaml.Node | None) -> bool:
    """Return whether it has a flow style or a key twice, which strictyaml refuses."""
    if not isinstance(node, yaml.CollectionNode):
        return False
    if node.flow_style:
        return True
    if isinstance(node, yaml.MappingNode):
        keys = [str(key.value) for key, _value in node.value]
        return len({*keys}) < len(keys) or any(_is_beyond_strict(value) for _key, value in node.value)
    return any(map(_is_beyond_strict, node.value))


def _one_line(value: object) -> str:
    return " ".join(str(value or "").split())
