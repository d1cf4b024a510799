"""Say what a word of a shell line is when it runs: quotes removed, with a mark for what only the shell knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from agent.permissions.patterns import MARKS, TEXT, VALUE

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_BARE = re.compile(r"\\(.)|([*?\[{~])|([^\\*?\[{~]+)", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)")
_EXPANSIONS = frozenset(
    ["simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution"]
)
_LEAVES = frozenset(["word", "number", "test_operator", "variable_name", "file_descriptor", "special_variable_name"])


def read_word(node: Node, source: bytes) -> str:
    """Return a word as its command gets it."""
    bare = "".join(text for text, is_quoted in _parts(node, source) if not is_quoted)
    if _BRACES.search(bare):  # {push,origin}: what stands before the first brace is known
        return _until_brace(node, source) + TEXT
    return "".join(_expand_bare(text) if not is_quoted else text for text, is_quoted in _parts(node, source))


def _until_brace(node: Node, source: bytes) -> str:
    known = ""
    for text, is_quoted in _parts(node, source):
        if not is_quoted and "{" in text:
            return known + _expand_bare(text.split("{")[0])
        known += text if is_quoted else _expand_bare(text)
    return known


def _parts(node: Node, source: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a word, and whether the shell takes them as they are."""
    kind, text = node.type, source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if kind in _LEAVES:
        yield text, False
    elif kind == "raw_string":
        yield text[1:-1], True
    elif kind == "ansi_c_string":
        yield _ANSI.sub(_decode_escape, text[2:-1]).split("\0")[0], True
    elif kind in ("string", "translated_string"):
        yield _read_string(node, source), True
    elif kind in ("concatenation", "command_name"):
        yield from _read_children(node, source)
    else:
        yield TEXT, True


def _read_children(node: Node, source: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the parts of the children, and of what the grammar leaves out between them."""
    end = node.start_byte
    for child in node.children:
        if child.start_byte > end:
            yield source[end : child.start_byte].decode("utf-8", "replace"), False
        if child.is_named:
            yield from _parts(child, source)
        else:
            yield (TEXT, True) if child.type in ("$", "`", "$(", "``") else (child.type, False)
        end = child.end_byte


def _read_string(node: Node, source: bytes) -> str:
    """Return a text in double quotes. What lies between its expansions is literal, also where the grammar skips it."""
    start = source.index(b'"', node.start_byte) + 1
    parts, end = [], start
    for child in node.children:
        if child.type in _EXPANSIONS or child.type == "string":
            if child.type == "string":  # of a translated string
                return _read_string(child, source)
            parts += [source[end : child.start_byte].decode("utf-8", "replace"), VALUE]
            text = source[child.start_byte : child.end_byte]
            if child.type.endswith("expansion") and (b"@" in text or b"*" in text):
                parts[-1] = TEXT  # "$@": several words
            end = child.end_byte
    parts.append(source[end : max(end, node.end_byte - 1)].decode("utf-8", "replace"))
    return "".join(each if MARKS.fullmatch(each) else re.sub(r'\\([$`"\\\n])', _unescape, each) for each in parts)


def _unescape(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _decode_escape(found: re.Match[str]) -> str:
    code, octal, control, other = found[1] or found[2] or found[3], found[4], found[5], found[6]
    if code:
        return chr(number) if (number := int(code, 16)) < 0x110000 else VALUE
    if octal:
        return chr(int(octal, 8) & 255)
    if control:
        return chr(ord(control) & 31)
    return _ESCAPES.get(other, other if other in "\\'\"?" else f"\\{other}")


def _expand_bare(text: str) -> str:
    """Return a text without quotes as the shell reads it: backslashes removed, globs marked."""
    parts = []
    for index, (escaped, special, plain) in enumerate(_BARE.findall(text)):
        if escaped:
            parts.append("" if escaped == "\n" else escaped)
        elif special == "~":
            parts.append(VALUE if index == 0 else "~")
        elif special == "{":
            parts.append("{")  # one without a comma is a brace
        else:
            parts.append(TEXT if special else plain)
    return "".join(parts)
