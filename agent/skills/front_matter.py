"""Read the YAML of a SKILL.md, which a stranger may have written: bounded before anything is built from it.

libyaml builds nodes by recursion in C, without a limit of its own: deep nesting ends the process, and nested aliases
grow without end when their value is written out. Events come one by one, so they are counted first.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from agent.skills.errors import SkillError
from catalogue import N_, LazyText

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
