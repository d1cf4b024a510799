"""Find every command that a shell line runs. Loads tree-sitter: import it only when a rule needs it.

What the parser is not certain of is reported as uncertain, so that a rule never allows it. The sandbox is the wall
between the agent and the machine; rules only decide what a person is asked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_bash.language()))
MAX_NESTING = 8  # shells inside shells
MAX_BYTES = 8192  # of a line that is parsed: the grammar is quadratic in places
MAX_PIPES = 800  # as many take 30 ms

# Programs that run the program in their arguments, with those of their short options that take a value.
_WRAPPERS = {
    "builtin": "",
    "busybox": "",
    "chroot": "",
    "command": "",
    "coproc": "",
    "doas": "u",
    "env": "iuSC",
    "exec": "a",
    "ionice": "cnp",
    "nice": "n",
    "nohup": "",
    "setsid": "",
    "stdbuf": "ioe",
    "sudo": "ugpCDhrt",
    "time": "fo",
    "timeout": "ks",
    "xargs": "IndPLsaE",
}
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_OPAQUE = frozenset(  # they run what their arguments or a file say, or give a name another meaning
    [
        "eval",
        "source",
        ".",
        "ssh",
        "su",
        "script",
        "watch",
        "parallel",
        "trap",
        "alias",
        "hash",
        "enable",
        "mapfile",
        "readarray",
        "complete",
        "bind",
        "flock",
        "unshare",
        "nsenter",
        "strace",
        "ltrace",
        "taskset",
        "chrt",
        "runuser",
        "fakeroot",
        "start-stop-daemon",
        "systemd-run",
    ]
)
_RUNNING_FIND = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprintf", "-fprint", "-fls"})
_DANGEROUS_VARIABLES = frozenset(
    {"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "IFS", "BASH_ENV", "ENV", "PYTHONPATH", "GIT_SSH_COMMAND", "PAGER"}
)
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*\+?=")
_PLAIN_WORD = re.compile(r"""(?:\\?[\w.+/-]|'[^']*'|"[^"$`\\]*")++$""")
_LITERAL = re.compile(r"""^(?:'([^']*)'|"([^"$`\\]*)")$""")
_WRITES = re.compile(r"^\d*(?:&?>|>\||>>|<>)")
_DUPLICATES = re.compile(r"^\d*>&\d+-?$")
_PIECES = re.compile(r"[;&|\n(){}`]+|\$\(|[<>]\(")


@dataclass(slots=True)
class ShellLine:
    """The commands of a line as tuples of words, the innermost too, and the files that redirections write.

    `certain` is False if a command may be hidden: a name that is computed, a nested shell, a syntax error. `text` is
    the line without the bodies of quoted here-documents, which are data.
    """

    commands: list[tuple[str, ...]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    certain: bool = True
    text: str = ""

    def pieces(self) -> Iterator[str]:
        """Yield every part of the text that could be a command, for rules that must not miss one."""
        yield self.text
        yield from (piece for part in _PIECES.split(self.text) if (piece := part.strip()))


def parse_shell_line(line: str, nesting: int = 0) -> ShellLine:
    """Parse a shell line. Never raises: what cannot be parsed is uncertain."""
    found = ShellLine()
    source = line.encode("utf-8", "replace")
    if nesting > MAX_NESTING or "\0" in line or len(source) > MAX_BYTES or source.count(b"|") > MAX_PIPES:
        return ShellLine(certain=False, text=line)
    root = _PARSER.parse(source).root_node
    here, data = _here_documents(root, source)
    if here:
        # The grammar loses what follows some here-documents (`<<X 2>&1 | rm`), so the line is parsed again without
        # them. Substitutions in their bodies are found in the first tree.
        for node in here:
            if node.type == "heredoc_body":
                _visit(node, source, found, nesting)
        root = _PARSER.parse(rest := _blank(source, here)).root_node
        found.certain &= b"<<" not in rest.replace(b"<<<", b"")
        _visit(root, rest, found, nesting)
    else:
        _visit(root, source, found, nesting)
    found.certain &= not root.has_error
    found.text = _blank(source, data).decode("utf-8", "replace")
    return found


def _here_documents(root: Node, source: bytes) -> tuple[list[Node], list[Node]]:
    """Return the operators, bodies and end marks of here-documents, and those of the bodies that are quoted."""
    nodes: list[Node] = []
    quoted: list[Node] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type == "heredoc_redirect":
            parts = [each for each in node.children if each.type.startswith("heredoc") or each.type in ("<<", "<<-")]
            nodes += parts
            start = next((source[each.start_byte : each.start_byte + 1] for each in parts if "start" in each.type), b"")
            if start in (b"'", b'"', b"\\"):
                quoted += [each for each in parts if each.type == "heredoc_body"]
        todo += node.children
    return nodes, quoted


def _blank(source: bytes, nodes: list[Node]) -> bytes:
    text = bytearray(source)
    for node in nodes:
        text[node.start_byte : node.end_byte] = b" " * (node.end_byte - node.start_byte)
    return bytes(text)


def _visit(root: Node, source: bytes, found: ShellLine, nesting: int) -> None:
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type in ("function_definition", "ERROR") or node.is_missing:
            found.certain = False
        elif node.type == "command":
            skipped = ("file_redirect", "herestring_redirect", "heredoc_redirect")
            _add_command([_text(each, source) for each in node.children if each.type not in skipped], found, nesting)
        elif node.type == "file_redirect":
            _add_redirect(node, source, found)
        elif node.type in ("declaration_command", "unset_command", "test_command"):
            found.commands.append(tuple(_text(node, source).split()[:2]))
        elif node.type == "variable_assignment" and _text(node, source).split("=")[0] in _DANGEROUS_VARIABLES:
            found.certain = False
        todo += reversed(node.children)


def _add_redirect(node: Node, source: bytes, found: ShellLine) -> None:
    text, target = _text(node, source), node.child_by_field_name("destination")
    writes = _WRITES.match(text) and not _DUPLICATES.match(text)
    if target is not None and writes and (name := _text(target, source)) != "/dev/null":
        found.writes.append(name)


def _add_command(words: list[str], found: ShellLine, nesting: int) -> None:
    """Add a command and the commands that it wraps."""
    while words:
        if _ASSIGNMENT.match(words[0]):
            found.certain &= words[0].split("=")[0].rstrip("+") not in _DANGEROUS_VARIABLES
            words = words[1:]
            continue
        if not _PLAIN_WORD.match(words[0]):  # $cmd, $(cmd), a glob
            found.commands.append(tuple(words))
            found.certain = False
            return
        name = posixpath.basename(re.sub(r"[\\'\"]", "", words[0]))
        found.commands.append((name, *words[1:]))
        if name in _SHELLS:
            _add_nested_shell(words[1:], found, nesting)
        elif name in _OPAQUE or (name == "find" and not _RUNNING_FIND.isdisjoint(words)):
            found.certain = False
        if name not in _WRAPPERS:
            return
        nesting += 1
        if nesting > MAX_NESTING:  # sudo sudo sudo …
            found.certain = False
            return
        words = _wrapped_words(name, words[1:])


def _add_nested_shell(arguments: list[str], found: ShellLine, nesting: int) -> None:
    """Add the commands of `bash -c 'LINE'`. Anything else that a nested shell runs is not visible."""
    if (
        len(arguments) >= 2
        and arguments[0] in ("-c", "-lc", "-ec", "-xc")
        and (literal := _LITERAL.match(arguments[1]))
    ):
        inner = parse_shell_line(literal[1] if literal[1] is not None else literal[2], nesting + 1)
        found.commands += inner.commands
        found.writes += inner.writes
        found.certain &= inner.certain
    else:
        found.certain = False


def _wrapped_words(name: str, words: list[str]) -> list[str]:
    """Return the words of the program that a wrapper runs."""
    with_value = _WRAPPERS[name]
    while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
        takes_next = len(words[0]) == 2 and words[0][1] in with_value
        words = words[2 if takes_next else 1 :]
    if name == "timeout" and words and re.match(r"^[\d.]+[smhd]?$", words[0]):
        words = words[1:]
    if name == "chroot":
        words = words[1:]
    return words


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")
