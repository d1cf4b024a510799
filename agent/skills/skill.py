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

from agent.skills.errors import SkillError
from agent.skills.front_matter import parse_fields, split_front_matter, text_field
from catalogue import N_, LazyText

MAX_SKILL_FILE_BYTES = 256 << 10  # of a SKILL.md; the specification advises 500 lines
MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS, MAX_COMPATIBILITY_CHARS = 64, 1024, 500
SKILL_FILES = ("SKILL.md", "skill.md")
ENTRY_FILE = "run.py"
FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})

_FOLDER_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_ALLOWED_TOOL = re.compile(r"[^\s,(]++(?:\([^()]*\))?+")


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
    front, body = split_front_matter(text)
    fields, warnings = parse_fields(front)
    description = text_field(fields, "description")
    if not description:
        raise SkillError(N_("it has no description"))
    warnings += validate_fields(fields, folder.name)
    name = unicodedata.normalize("NFKC", text_field(fields, "name"))
    name = next((each for each in (name, folder.name) if is_folder_name(each)), "")
    if not name:
        raise SkillError(N_("its name cannot be the name of a folder"))
    metadata = fields.get("metadata")
    entry = text_field(metadata, "entry") if isinstance(metadata, dict) else ""
    return Skill(
        name,
        description[:MAX_DESCRIPTION_CHARS],
        body,
        split_allowed_tools(fields.get("allowed-tools")),
        entry or (ENTRY_FILE if (folder / ENTRY_FILE).is_file() else ""),
        tuple(warnings),
    )


def is_folder_name(name: str) -> bool:
    """Return whether a skill of this name can have a folder of this name."""
    return _FOLDER_NAME.fullmatch(name) is not None


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
    """Split `Bash(git:*) Read`, `Read, Grep` or a list. Blanks between brackets belong to the pattern.

    Raises SkillError for anything else.
    """
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(text for item in value if (text := item.strip()))
    if value is not None and not isinstance(value, str):
        raise SkillError(N_("its field {field} is neither a text nor a list of texts"), field="allowed-tools")
    return tuple(_ALLOWED_TOOL.findall(value or ""))
