"""Read one skill: a folder with a SKILL.md, which is YAML between `---` lines and then Markdown.

Reading is lenient, as the format's guide for clients asks (https://agentskills.io/specification): what the
specification forbids is a warning. `validate_fields` has the same verdict as the reference validator, skills-ref 0.1.

Define the error that says what is wrong with a skill.

Read the YAML of a SKILL.md, which a stranger may have written: bounded before anything is built from it.

libyaml builds nodes by recursion in C, without a limit of its own: deep nesting ends the process, and nested aliases
grow without end when their value is written out. Events come one by one, so they are counted first.
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


class SkillError(LocalizedError):
    """A skill cannot be used or changed; the text says why."""


MAX_FRONT_BYTES = 16 << 10
MAX_FRONT_DEPTH, MAX_FRONT_EVENTS = 8, 1_000

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*+\r?\n(.*?\r?\n)---[ \t]*+(?:\r?\n|\Z)", re.DOTALL)
_UNQUOTED = re.compile(r"^([A-Za-z][\w-]*+):[ \t]++(?![\"'|>\[{&*!#%@`])(.*:[ \t].*|.*[ \t]#.*|.*:)$", re.MULTILINE)
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar stays a string, as for the reference validator


def split_front_matter(text: str) -> tuple[str, str]:
    """Return the YAML between the lines of `---`, and the body. Raises SkillError."""
    found = _FRONT_MATTER.match(text)
    if not found:
        raise SkillError(N_("its SKILL.md does not begin with fields between two lines of ---"))
    if len(found[1].encode()) > MAX_FRONT_BYTES:
        raise SkillError(N_("the fields of its SKILL.md are larger than {limit} KB"), limit=MAX_FRONT_BYTES >> 10)
    return found[1], text[found.end() :].strip()


def parse_fields(front: str) -> tuple[dict[str, Any], list[LazyText]]:
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
            raise SkillError(N_("the fields of its SKILL.md are not YAML: {reason}"), reason=one_line(error)) from None
    if not isinstance(fields, dict):
        raise SkillError(N_("the fields of its SKILL.md are not YAML: {reason}"), reason=LazyText(N_("no mapping")))
    if _is_beyond_strict(node):
        warnings.append(LazyText(N_("its fields use YAML that the format's validator refuses, such as [a, b]")))
    return fields, warnings


def text_field(fields: dict[str, Any], name: str) -> str:
    """Return a field's text on one line; "" without it. Raises SkillError if it is a list or a mapping."""
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise SkillError(N_("its field {field} is a list or a mapping instead of a text"), field=name)
    return one_line(value)


def one_line(value: object) -> str:
    """Return a text without line breaks and doubled blanks."""
    return " ".join(str(value).split())


def _load_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the syntax tree and the value. The loader makes only texts, lists and mappings. Raises SkillError."""
    _check_events(text)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def _check_events(text: str) -> None:
    """Refuse what could grow beyond the text. It is the parser that loads it afterwards, so both read the same."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, _Loader)):
        if getattr(event, "anchor", None) is not None:  # of an alias, too
            raise SkillError(N_("the fields of its SKILL.md use anchors (&) or aliases (*): write the values out"))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_FRONT_DEPTH or count > MAX_FRONT_EVENTS:
            limits = {"depth": MAX_FRONT_DEPTH, "values": MAX_FRONT_EVENTS}
            sentence = N_("the fields of its SKILL.md are nested deeper than {depth} levels, or more than {values}")
            raise SkillError(sentence, **limits)


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


MAX_SKILL_FILE_BYTES = 256 << 10  # of a SKILL.md; the specification advises 500 lines
MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS, MAX_COMPATIBILITY_CHARS = 64, 1024, 500
SKILL_FILES = ("SKILL.md", "skill.md")
ENTRY_FILE = "run.py"
MAX_WORDS = 30  # of what a skill needs, and of what it uses
FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})

_FOLDER_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_ALLOWED_TOOL = re.compile(r"[^\s,(]++(?:\([^()]*\))?+")


@dataclass(frozen=True, slots=True)
class Skill:
    """What a SKILL.md says. `allowed_tools` is a wish of its author: it grants nothing.

    `entry` is the program that takes JSON and returns JSON, relative to the folder; "": none. `needs` and `uses` name
    the packages, programs and network that it cannot work without, or that a part of its work takes (`readiness.py`).
    """

    name: str
    description: str
    body: str
    allowed_tools: tuple[str, ...] = ()
    entry: str = ""
    warnings: tuple[LazyText, ...] = ()
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


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
    more = fields.get("metadata")
    metadata = more if isinstance(more, dict) else {}
    entry = text_field(metadata, "entry")
    return Skill(
        name,
        description[:MAX_DESCRIPTION_CHARS],
        body,
        split_allowed_tools(fields.get("allowed-tools")),
        entry or (ENTRY_FILE if (folder / ENTRY_FILE).is_file() else ""),
        tuple(warnings),
        needs=tuple(text_field(metadata, "needs").split()[:MAX_WORDS]),
        uses=tuple(text_field(metadata, "uses").split()[:MAX_WORDS]),
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
