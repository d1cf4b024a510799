"""Find every command that a shell line runs. Loads tree-sitter: import it only when a rule needs it.

What the parser is not certain of is reported as uncertain, so that a rule never allows it. The sandbox is the wall
between the agent and the machine; rules only decide what a person is asked. Judging takes a bounded time: a line that
is too long or too nested is not parsed, and is uncertain.
"""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from agent.permissions.patterns import MARKS, TEXT, VALUE, name_set
from agent.permissions.programs import (
    ASSIGNMENT,
    OPAQUE,
    RUNNERS,
    SHELLS,
    WRAPPERS,
    Words,
    command_forms,
    found_programs,
    join_words,
    shell_script,
    unwrap,
)
from agent.permissions.words import read_word

_PARSER = Parser(Language(tree_sitter_bash.language()))
_PARSING = threading.Lock()  # lines are judged in threads
MAX_NESTING = 8  # shells inside shells, programs that run programs
MAX_BYTES = 8192  # of a line that is parsed: the grammar is quadratic in places
MAX_NODES = 3000  # of the tree of a line: each takes some 10 µs
MAX_PIPES = 400  # as many take 10 ms, as many `${` 5 ms
MAX_PIECES = 1000
MAX_COMMANDS = 2000
MAX_SUFFIXES = 20  # words of a wrapper with an unknown option at which its program may begin

_SYSTEM_FOLDERS = re.compile(r"/(?:usr|s?bin|opt)/(?!.*\.\.)")
_LOADERS = re.compile(r"ld(?:-linux[\w-]*|-musl[\w-]*)?\.so[\w.]*|ld-[\d.]+\.so")
_DANGEROUS_VARIABLES = re.compile(
    r"PATH|IFS|ENV|PS[0-4]|PROMPT_COMMAND|HOME|XDG_CONFIG_HOME|CURL_HOME|(?:SYSTEM_)?WGETRC|PYTHONPATH|PYTHONSTARTUP"
    r"|PERL5\w+|RUBYOPT|RUBYLIB|NODE_OPTIONS|JAVA_TOOL_OPTIONS|MAKEFLAGS|TAR_OPTIONS|RSYNC_RSH|RIPGREP_CONFIG_PATH"
    r"|SSH_ASKPASS|EDITOR|VISUAL|\w*PAGER|LESS(?:OPEN|CLOSE)|SHELLOPTS|BASHOPTS|(?:LD|BASH|DYLD)_\w+"
    r"|GIT_(?!AUTHOR_|COMMITTER_|TERMINAL_PROMPT)\w+"
)
_PLAIN_PAGER = re.compile(r"(?:GIT_)?PAGER=(?:cat|less)?")
_SETTING_BUILTINS = name_set("read printf getopts wait unset declare typeset local export readonly let")
_EVALUATING_BUILTINS = _SETTING_BUILTINS | {"test", "["}
_HIDDEN_COMMAND = re.compile(r"\$\(|`")
_HIDDEN_INDEX = re.compile(r"\[[^\][$`]*(?:\$(?!\()[^\][$`]*)*(?:\$\(|`)")  # possessive groups fail on Python 3.11.2
_DEFAULTING = re.compile(r"\$\{(\w+):?=")
_JOINED_LINES = re.compile(r"[^\s]\\\n\S")
_WRITES = re.compile(r"^\d*(?:&?>|>\||>>|<>)")
_DUPLICATES = re.compile(r"^\d*>&\d+-?$")
_CONFIGURATION = re.compile(r"(?:^|/)(?:\.(?:curlrc|wgetrc|gitconfig|npmrc|bashrc|bash_profile|profile)|\.git/.*)$")
_PIECES = re.compile(r"[;&|\n(){}`]+|\$\(|[<>]\(")
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")


@dataclass(frozen=True, slots=True)
class FoundCommand:
    """A command: its words as it gets them, as the line spells it, and further forms for rules that deny or ask.

    `file` is its program as it is written, if that is outside of the system's folders and so may hold any command.
    """

    words: Words
    raw: str = ""
    forms: tuple[str, ...] = ()
    file: str = ""

    def texts(self) -> set[str]:
        """Return the spellings that a rule may match, each of which says the whole command."""
        if self.file:  # `./git status` is no `git status`
            return {" ".join((self.file, *self.words[1:]))}
        return {" ".join(self.words), self.raw or " ".join(self.words)}

    def all_texts(self) -> set[str]:
        """Return the spellings that a rule must not miss."""
        return {*self.texts(), self.raw or " ".join(self.words), join_words(self.words), *self.forms}


@dataclass(slots=True)
class ShellLine:
    """The commands of a line, the innermost too, and the files that redirections write.

    `certain` is False if a command may be hidden: a name that is computed, a nested shell, a syntax error. `text` is
    the line without the bodies of quoted here-documents, which are data. `fed` is what commands may read:
    here-documents, here-strings, and what is printed into a pipe.
    """

    commands: list[FoundCommand] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    certain: bool = True
    text: str = ""
    fed: list[str] = field(default_factory=list)

    def pieces(self) -> Iterator[str]:
        """Yield every part of the text that could be a command, for rules that must not miss one."""
        yield self.text
        yield from dict.fromkeys(piece for part in _PIECES.split(self.text)[:MAX_PIECES] if (piece := part.strip()))


@lru_cache(maxsize=64)
def parse_shell_line(line: str, nesting: int = 0) -> ShellLine:
    """Parse a shell line. Never raises: what cannot be parsed is uncertain. The result is shared: do not change it."""
    found = ShellLine()
    source = line.encode("utf-8", "replace")
    too_much = len(source) > MAX_BYTES or source.count(b"|") > MAX_PIPES or source.count(b"${") > MAX_PIPES
    if nesting > MAX_NESTING or too_much or "\0" in line or MARKS.search(line):
        return ShellLine(certain=False, text=line)
    root = _parse(source)
    if root.descendant_count > MAX_NODES:
        return ShellLine(certain=False, text=line)
    here, data = _here_documents(root, source)
    found.fed = [_text(each, source) for each in here if each.type in ("heredoc_body", "herestring_redirect")]
    here = [each for each in here if each.type != "herestring_redirect"]
    if here:
        # The grammar loses what follows some here-documents (`<<X 2>&1 | rm`), so the line is parsed again without
        # them. Substitutions in their bodies are found in the first tree.
        for node in here:
            if node.type == "heredoc_body":
                _visit(node, source, found, nesting)
                found.certain &= node in data or not _hides_substitution(node, source)
        root = _parse(rest := _blank(source, here))
        found.certain &= b"<<" not in rest.replace(b"<<<", b"")
        _visit(root, rest, found, nesting)
    else:
        _visit(root, source, found, nesting)
    if "|" in line:
        found.fed += [" ".join(each.words[1:]) for each in found.commands if each.words[:1] in (("echo",), ("printf",))]
    if any(each.words[0] in SHELLS and shell_script(each.words[1:]) is None for each in found.commands if each.words):
        data = []  # a shell may read them
    found.text = _blank(source, data).decode("utf-8", "replace")
    found.certain &= not root.has_error and not _JOINED_LINES.search(found.text)  # the grammar splits `pu\\NEWLINEsh`
    return found


def _parse(source: bytes) -> Node:
    with _PARSING:
        return _PARSER.parse(source).root_node


def _here_documents(root: Node, source: bytes) -> tuple[list[Node], list[Node]]:
    """Return the parts of here-documents and here-strings, and those of the bodies that are quoted."""
    nodes: list[Node] = []
    quoted: list[Node] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type == "herestring_redirect":
            nodes.append(node)
        elif node.type == "heredoc_redirect":
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
    late: dict[int, list[Node]] = {}  # words behind a redirection, by the start of their command
    while todo:
        node = todo.pop()
        if node.type in ("function_definition", "ERROR") or node.is_missing:
            found.certain = False
        elif node.type == "redirected_statement":
            _note_late_words(node, late, found)
        elif node.type == "command":
            _add_command_node(node, late.get(node.start_byte, []), source, found, nesting)
        elif node.type == "file_redirect":
            _add_redirect(node, source, found)
        elif node.type in ("declaration_command", "unset_command", "test_command"):
            _add_builtin(node, source, found)
        elif node.type == "variable_assignment":
            _check_assignment(node, source, found)
        elif node.type == "for_statement" and (name := node.child_by_field_name("variable")):
            found.certain &= not _DANGEROUS_VARIABLES.fullmatch(_text(name, source))
        elif node.type == "expansion":
            _check_expansion(_text(node, source), found)
        elif node.type == "command_substitution":
            found.certain &= not _text(node, source).startswith("`") or "\\`" not in _text(node, source)
        todo += reversed(node.children)


def _hides_substitution(body: Node, source: bytes) -> bool:
    """Return whether the body of a here-document may run a command that the grammar does not see there: it knows no
    backticks in it, and not every body behind `<<-`."""
    text = _text(body, source)
    seen = [each.type for each in body.named_children].count("command_substitution")
    return "`" in text or text.count("$(") > seen


def _note_late_words(node: Node, late: dict[int, list[Node]], found: ShellLine) -> None:
    """Note the words behind a redirection: the grammar takes `push` in `git > x push` for a second file."""
    words = [
        each
        for child in node.children_by_field_name("redirect")
        if child.type == "file_redirect"
        for each in child.children_by_field_name("destination")[1:]
    ]
    body = node.child_by_field_name("body")
    while words and body is not None and body.type != "command":
        body = body.named_children[-1] if body.named_children and body.type in ("pipeline", "list") else None
    if words and body is None:
        found.certain = False
    elif body is not None:
        late[body.start_byte] = words


def _check_expansion(text: str, found: ShellLine) -> None:
    """A prompt (`${x@P}`) runs what is in it; `${PATH:=.}` sets a variable. The grammar takes backticks for text."""
    defaulting = _DEFAULTING.match(text)
    if "@P" in text or "`" in text or (defaulting and _DANGEROUS_VARIABLES.fullmatch(defaulting[1])):
        found.certain = False


def _check_assignment(node: Node, source: bytes, found: ShellLine) -> None:
    text = _text(node, source)
    name = re.split(r"\+?=|\[", text, maxsplit=1)[0]
    value = node.child_by_field_name("value")
    literal = read_word(value, source) if value is not None and value.type != "array" else ""
    if _DANGEROUS_VARIABLES.fullmatch(name) and not _PLAIN_PAGER.fullmatch(f"{name}={literal}"):
        found.certain = False
    found.certain &= not _HIDDEN_COMMAND.search(literal)  # arithmetic would run it


def _add_builtin(node: Node, source: bytes, found: ShellLine) -> None:
    """Add `export`, `unset` or a test. Its words are checked for variables that it sets, and for hidden commands."""
    raw = _text(node, source)
    words = [read_word(each, source) for each in node.named_children if each.type != "variable_assignment"]
    found.commands.append(FoundCommand(tuple(raw.split()[:2])))
    if node.type == "test_command":
        found.certain &= not any(map(_HIDDEN_INDEX.search, _literals(node, source)))
        return
    for word in words:
        name = re.split(r"\+?=|\[", word, maxsplit=1)[0]
        hidden = _DANGEROUS_VARIABLES.fullmatch(name) or MARKS.search(name) or _HIDDEN_COMMAND.search(word)
        found.certain &= not hidden and not (word.startswith("-") and "n" in word)


def _literals(node: Node, source: bytes) -> Iterator[str]:
    todo = [node]
    while todo:
        each = todo.pop()
        if each.type in ("raw_string", "ansi_c_string", "string", "concatenation", "word"):
            yield read_word(each, source)
        todo += each.named_children


def _add_redirect(node: Node, source: bytes, found: ShellLine) -> None:
    text, target = _text(node, source), node.child_by_field_name("destination")
    writes = _WRITES.match(text) and not _DUPLICATES.match(text)
    if target is not None and writes and (name := _text(target, source)) != "/dev/null":
        found.writes.append(name)
        found.certain &= not _CONFIGURATION.search(read_word(target, source))  # programs of the same line may read it


def _add_command_node(node: Node, late: Sequence[Node], source: bytes, found: ShellLine, nesting: int) -> None:
    skipped = (*_REDIRECTS, "variable_assignment")
    nodes = [each for each in node.children if each.type not in skipped] + list(late)
    raw = [_text(each, source) for each in nodes]
    _add_command(tuple(read_word(each, source) for each in nodes), raw, found, nesting)


def _add_command(words: Words, raw: Sequence[str], found: ShellLine, nesting: int) -> None:
    """Add a command and the commands that it wraps."""
    while words:
        if len(found.commands) >= MAX_COMMANDS:
            found.certain = False
            return
        name = _program_name(words[0])
        if not name:  # $cmd, $(cmd), a glob
            found.commands.append(FoundCommand(words, " ".join(raw)))
            found.certain = False
            return
        arguments = words[1:]
        forms, is_certain = command_forms((name, *arguments), raw)
        if name in RUNNERS:
            forms += _suffixes(arguments)
        found.certain &= is_certain and not _hides_command(name, arguments)
        inner = unwrap(name, arguments) if name in WRAPPERS else None
        is_group = name == "coproc" and "{" in arguments  # `coproc NAME { …; }`, which the grammar does not know
        found.certain &= not is_group
        if is_group or (inner and not inner.certain):
            forms += _suffixes(arguments)
        file = words[0] if "/" in words[0] and not _SYSTEM_FOLDERS.match(words[0]) else ""
        found.commands.append(FoundCommand((name, *arguments), " ".join((name, *raw[1:])), tuple(forms), file))
        if name in SHELLS:
            _add_nested_shell(arguments, found, nesting)
        elif name == "find":
            _add_found_programs(arguments, found, nesting)
        if inner is None:
            return
        nesting += 1
        found.certain &= inner.certain and nesting <= MAX_NESTING and not any(map(_is_dangerous, inner.assigned))
        words, raw = (inner.words, inner.words) if nesting <= MAX_NESTING else ((), ())


def _suffixes(words: Words) -> list[str]:
    return [join_words(words[index:]) for index in range(min(len(words), MAX_SUFFIXES))]


def _program_name(word: str) -> str:
    """Return the name of a program, "" if only the shell knows it. The folder does not matter, if it is one word."""
    _folder, slash, name = word.rpartition("/")
    return "" if TEXT in word or VALUE in name else posixpath.basename(word) or (word and slash) or "''"


def _is_dangerous(assignment: str) -> bool:
    return bool(_DANGEROUS_VARIABLES.fullmatch(re.split(r"\+?=|\[", assignment, maxsplit=1)[0]))


def _hides_command(name: str, arguments: Words) -> bool:
    """Return whether a builtin runs a command that its arguments hide, or sets a variable that others depend on."""
    if name in OPAQUE or _LOADERS.fullmatch(name):
        return True
    if name in _EVALUATING_BUILTINS and any(map(_HIDDEN_INDEX.search, arguments)):
        return True
    if name == "let" and any(map(_HIDDEN_COMMAND.search, arguments)):
        return True
    sets = name in _SETTING_BUILTINS and (name != "printf" or arguments[:1] == ("-v",))
    return sets and any(ASSIGNMENT.match(f"{each}=") and _is_dangerous(each) for each in arguments)


def _add_found_programs(arguments: Words, found: ShellLine, nesting: int) -> None:
    """Add what `find` runs. What it deletes or writes counts as written."""
    programs, changes = found_programs(arguments)
    for words in programs:
        if nesting < MAX_NESTING:
            _add_command(words, words, found, nesting + 1)
        found.certain &= nesting < MAX_NESTING
    found.certain &= not any(MARKS.match(each) for each in arguments[1:])  # it may be `-exec`
    if changes:
        found.writes.append("find")


def _add_nested_shell(arguments: Words, found: ShellLine, nesting: int) -> None:
    """Add the commands of `bash -c 'LINE'`. Anything else that a nested shell runs is not visible."""
    if (script := shell_script(arguments)) is None:
        found.certain = False
        return
    inner = parse_shell_line(script, nesting + 1)
    found.commands += inner.commands
    found.writes += inner.writes
    found.certain &= inner.certain


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")
