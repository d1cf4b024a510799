"""Rules about tool calls: `deny`, then `ask`, then `allow`, by tool and by a pattern on the argument that matters.

The form is the one people know: `bash(git push *)`, `write_file(/mnt/user-data/outputs/*)`, `mcp__github__*`. How
specific a rule is does not matter. A shell line is judged by every command in it; what cannot be seen in it is never
allowed by a pattern.
"""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from agent.permissions.invisible import show_invisible
from agent.permissions.patterns import MARKS, TEXT, compile_part, compile_pattern, could_match
from agent.permissions.programs import only_prints
from catalogue import _
from sandbox.base import WORKSPACE

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

    from agent.permissions.shell import FoundCommand, ShellLine


class RuleText(str):
    """The text of a rule in the configuration, checked when it is read."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> Any:
        from pydantic import AfterValidator

        return handler(Annotated[str, AfterValidator(lambda text: parse_rule("ask", text) and cls(text))])


Verdict = Literal["allow", "ask", "deny"]
SEVERITY: Sequence[Verdict] = ("deny", "ask", "allow")
MAX_SEARCHED = 40_000  # characters: 40 ms at worst
MAX_WORK = 5_000_000  # characters of a line's commands, each times the rules: 20 ms
MARKED_WORK = 25  # a text with marks is compared character by character, in Python

_RULE = re.compile(r"([A-Za-z_][\w*.-]*)(?:\((.*)\))?", re.DOTALL)


def permission_question_id(id: str, value: object) -> str:
    """Return the id of the permission policy's question in the call of an interrupt, "" if it did not ask. A tool that
    asks after it says so in `approval`."""
    if not isinstance(value, dict):
        return ""
    return id if value.get("permission") is True else str(value.get("approval", ""))


@dataclass(frozen=True, slots=True)
class Subject:
    """The argument of a tool that patterns are compared with, and what it holds.

    `paths` is a list of objects with a `path`. A `folder` is a path of which everything below is read.
    """

    argument: str
    kind: Literal["shell", "path", "paths", "folder", "skill", "text"] = "text"
    default: str = ""  # without the argument


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call as rules see it: the tool's name, its arguments, its subject, and the verdict without a rule.

    `real` has its paths as the sandbox resolves them, if that was asked (`resolve_paths`).
    """

    name: str
    args: Mapping[str, Any]
    subject: Subject | None = None
    default: Verdict = "ask"
    real: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        """Return the paths that the call names; none if its subject is something else."""
        if self.subject is None or self.subject.kind not in ("path", "paths", "folder"):
            return []
        value = self.args.get(self.subject.argument, self.subject.default)
        if self.subject.kind != "paths":
            return [str(value)]
        return [str(each.get("path", "") if isinstance(each, Mapping) else each) for each in value or ()]


def canonical_path(path: str) -> str:
    """Return a path without `..`, doubled slashes, or links that a name shows: below the workspace, if relative."""
    return posixpath.normpath(re.sub("/+", "/", posixpath.join(WORKSPACE, path)))


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the rule that led to it ("" if none did)."""

    verdict: Verdict
    rule: str = ""


SAME_DEED = {"grep": "read_file", "view_image": "read_file", "str_replace": "write_file"}
"""Tool → the tool whose rules about paths hold for it, too, because it reads or writes the file as well."""

GRANTED = "granted"  # in place of a rule: a person has allowed such calls


class PermissionGate(Protocol):
    """Decides about the calls of one turn. The bot gives it the rules and rights that are in force."""

    async def judge(self, use: ToolUse) -> Judgement:
        """Return the verdict about a call. If it raises, the call does not run."""

    def hides(self, tool: str) -> bool:
        """Return whether a tool never runs, whatever its arguments, so that the model does not get it."""

    def compares(self, tool: str) -> bool:
        """Return whether it matters for a call of this tool what its arguments are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A verdict for calls of the tools that `tool` matches, whose subject `pattern` matches ("" matches all).

    A `builtin` rule holds for what no rule of the configuration matches.
    """

    verdict: Verdict
    tool: str
    pattern: str = ""
    builtin: bool = False

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    def names(self, tool: str) -> bool:
        """Return whether the rule is about this tool. Upper and lower case are equal, so `Bash` is `bash`.

        One with a pattern that does not allow is also about other tools that do the same to a file.
        """
        own, deed = self.tool.lower(), SAME_DEED.get(tool.lower(), "")
        return fnmatch.fnmatchcase(tool.lower(), own) or bool(
            deed and self.pattern and self.verdict != "allow" and fnmatch.fnmatchcase(deed, own)
        )

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches. `*` matches any text; `git *` also matches `git`."""
        return not self.pattern or bool(compile_pattern(self.pattern)(text))

    def could_match(self, text: str) -> bool:
        """Return whether the pattern matches the text of a command for a value of what is known only when it runs."""
        return bool(MARKS.search(text)) and could_match(self.pattern, text)

    def occurs_in(self, text: str) -> bool:
        """Return whether the pattern matches a part of the text, or the text is too long to say so."""
        return len(text) > MAX_SEARCHED or bool(compile_part(self.pattern)(text))


def parse_rule(verdict: Verdict, text: str) -> Rule:
    """Read a rule. Raises ValueError with what to write instead."""
    found = _RULE.fullmatch(text.strip())
    if not found:
        raise ValueError(
            _("{text!r} is not a rule: write a tool, `bash`, or a tool with a pattern, `bash(git *)`", text=text)
        )
    pattern = (found[2] or "").strip()
    if found[2] is not None and not pattern:
        raise ValueError(
            _("{text!r} has an empty pattern: write `{tool}` for each of its calls", text=text, tool=found[1])
        )
    if pattern.startswith("domain:"):  # how another program names a site; as a pattern here it would match nothing
        site = pattern.removeprefix("domain:") or "example.com"
        raise ValueError(
            _("{text!r} is the form of another program: write `web_fetch(https://{site}/*)`", text=text, site=site)
        )
    if pattern.endswith(":*"):  # an older form of a prefix
        pattern = f"{pattern[:-2]} *"
    return Rule(verdict, found[1], "" if pattern == "*" else pattern)


def parse_rules(deny: Iterable[str] = (), ask: Iterable[str] = (), allow: Iterable[str] = ()) -> tuple[Rule, ...]:
    """Read the rules of all three kinds. Raises ValueError."""
    texts: Mapping[Verdict, Iterable[str]] = {"deny": deny, "ask": ask, "allow": allow}
    return tuple(parse_rule(verdict, text) for verdict in SEVERITY for text in texts[verdict])


@dataclass(frozen=True, slots=True)
class Grant:
    """What a person allowed for the future: a tool with exactly this subject, or the whole tool if it has none."""

    tool: str
    subject: str = ""


def grant_for(use: ToolUse) -> Grant:
    """Return the grant that allows this call again."""
    return Grant(use.name, "\n".join(use.real) or _subject_texts(use)[0] if use.subject else "")


def permission_question(use: ToolUse) -> dict[str, Any]:
    """Return the value of the interrupt that asks whether a call may run."""
    grant, argument = grant_for(use), use.subject.argument if use.subject else ""
    told = {"permission": True, "grant": [grant.tool, grant.subject], "argument": argument}
    told |= {"subject": use.subject.kind, "default": use.subject.default} if use.subject else {"subject": ""}
    told["real"] = list(use.real)
    return {"kind": "approve", "name": use.name, "args": dict(use.args), **told}


def asked_use(question: Mapping[str, Any]) -> ToolUse:
    """Return the call of a question that `permission_question` made."""
    argument = str(question["argument"])
    kind: Any = question.get("subject") or "text"
    default = str(question.get("default", ""))
    subject = Subject(argument, kind, default) if argument else None
    return ToolUse(str(question["name"]), question["args"], subject, real=tuple(question.get("real", ())))


def strictest(judgements: Iterable[Judgement], default: Verdict) -> Judgement:
    """Return the first of the strictest judgements."""
    return min(judgements, key=lambda each: SEVERITY.index(each.verdict), default=Judgement(default))


def describe_call(name: str, args: Mapping[str, Any]) -> str:
    """Return the exact call as text. Characters that a reader cannot see are escaped."""
    text = f"{name}\n{json.dumps(args, ensure_ascii=False, indent=2, sort_keys=True, default=str)}"
    text = text.replace("```", r"\u0060" * 3)  # platforms would end the block of code there; it is the same JSON
    return show_invisible(text)


def hiding_rules(rules: Iterable[Rule]) -> Sequence[Rule]:
    """Return the rules that deny every call of a tool."""
    return [rule for rule in rules if rule.verdict == "deny" and not rule.pattern]


def hides(rules: Iterable[Rule], tool: str) -> bool:
    """Return whether one of the rules denies every call of a tool."""
    return any(rule.names(tool) for rule in hiding_rules(rules))


def compares(rules: Iterable[Rule], tool: str) -> bool:
    """Return whether one of the rules compares the arguments of a tool, or asks, so that a grant does."""
    return any((rule.pattern or rule.verdict == "ask") and rule.names(tool) for rule in rules)


@dataclass(frozen=True, slots=True)
class RulePermissions:
    """A gate of rules. Without any, the tools' own defaults hold."""

    rules: Sequence[Rule] = ()

    async def judge(self, use: ToolUse) -> Judgement:
        """Return the verdict about a call."""
        return judge(self.rules, use)

    def hides(self, tool: str) -> bool:
        """Return whether a rule denies every call of the tool."""
        return hides(self.rules, tool)

    def compares(self, tool: str) -> bool:
        """Return whether a rule compares the arguments of the tool."""
        return compares(self.rules, tool)


def judge(rules: Sequence[Rule], use: ToolUse) -> Judgement:
    """Return the verdict of the rules about a call."""
    mine = [rule for rule in rules if rule.names(use.name)]
    if use.subject and use.subject.kind == "shell" and any(rule.pattern for rule in mine):
        return _judge_shell_line(mine, use, str(use.args.get(use.subject.argument, "")))
    if paths := use.paths():
        real = use.real or [canonical_path(path) for path in paths]
        groups = [{canonical_path(path), each} for path, each in zip(paths, real, strict=True)]
        is_folder = use.subject is not None and use.subject.kind == "folder"
        found = [_strictest_rule(_path_rules(mine, group, is_folder=is_folder), use.default) for group in groups]
        return strictest(found, use.default)
    texts = _subject_texts(use)
    # Without a subject, what must not be missed is looked for in every argument, and a pattern cannot allow.
    hits = [rule for rule in mine if use.subject or rule.verdict != "allow" or not rule.pattern]
    return _strictest_rule([rule for rule in hits if any(map(rule.matches, texts))], use.default)


def _path_rules(rules: Sequence[Rule], texts: Collection[str], *, is_folder: bool) -> list[Rule]:
    """Return the rules about a path: as it is written, and as it is resolved. Below a folder, too, they must not be
    missed. One that allows matches both."""
    below = [f"{text.rstrip('/')}/{TEXT}" for text in texts] if is_folder else []
    return [
        rule
        for rule in rules
        if (all if rule.verdict == "allow" else any)(map(rule.matches, texts))
        or (rule.verdict != "allow" and any(map(rule.could_match, below)))
    ]


def _judge_shell_line(rules: Sequence[Rule], use: ToolUse, text: str) -> Judgement:
    from agent.permissions.shell import FoundCommand, parse_shell_line

    line = parse_shell_line(text)
    commands = list(dict.fromkeys(line.commands or [FoundCommand((text,))]))
    found: list[Judgement] = []
    strict = [rule for rule in rules if rule.verdict != "allow" and rule.pattern and not rule.builtin]
    work = MAX_WORK // len(rules)
    while commands and work > 0:
        command = commands.pop(0)
        work -= sum((len(each) + 100) * (MARKED_WORK if MARKS.search(each) else 1) for each in command.all_texts())
        found += _judge_command(rules, command, use.default) if work > 0 else ()
        found += [Judgement("ask", str(rule)) for rule in strict if work > 0 and _occurs_in_script(rule, command)]
        if strict and command.file and not _is_allowed_by_pattern(rules, command):
            found.append(Judgement("ask"))
    if line.fed and not all(only_prints(each.words) for each in line.commands):  # one may run what it reads
        found += [Judgement("ask", str(rule)) for rule in strict if rule.occurs_in("\n".join(line.fed))]
    is_certain = line.certain and work > 0
    if not is_certain:
        found += _judge_uncertain_text(strict, line, min(work, MAX_WORK // len(rules)))
        texts = (line.text, line.text.replace("\\\n", ""))  # a line that goes on
        found += [
            Judgement(rule.verdict, str(rule)) for rule in rules if rule.builtin and any(map(rule.occurs_in, texts))
        ]
    trusted = use.default == "allow" or any(rule.verdict == "allow" and not rule.pattern for rule in rules)
    if (not is_certain and (strict or not trusted)) or (line.writes and not trusted):
        found.append(Judgement("ask"))
    return strictest(found, use.default)


def _occurs_in_script(rule: Rule, command: FoundCommand) -> bool:
    """Return whether the pattern stands in the arguments of a program that may run them.

    One of a single word, such as `rm *`, must stand in an argument of several words: elsewhere it names a verb or file.
    """
    if not only_prints(command.words):
        several = " " in rule.pattern.removesuffix(" *")
        arguments = [" ".join(command.words[1:])] if several else [each for each in command.words[1:] if " " in each]
        return any(rule.occurs_in(each) for each in arguments if len(each) <= MAX_SEARCHED)
    return False


def _is_allowed_by_pattern(rules: Sequence[Rule], command: FoundCommand) -> bool:
    """Return whether a rule with a pattern allows the command, so that somebody has accepted the file that it runs."""
    allowing = [rule for rule in rules if rule.verdict == "allow" and rule.pattern]
    return any(any(map(rule.matches, command.texts())) for rule in allowing)


def _judge_uncertain_text(rules: Sequence[Rule], line: ShellLine, work: int) -> Iterator[Judgement]:
    """Yield the verdicts about the parts of a text that may be commands."""
    for piece in line.pieces():
        work -= len(piece) + 100
        if work < 0:
            return
        yield from (Judgement(rule.verdict, str(rule)) for rule in rules if rule.matches(piece))


def _judge_command(rules: Sequence[Rule], command: FoundCommand, default: Verdict) -> Iterator[Judgement]:
    """Yield the verdict about a command, and `ask` for each rule that could match what is known only when it runs."""
    texts, all_texts = command.texts(), command.all_texts()
    hits, possible = [], []
    for rule in rules:
        if any(map(rule.matches, texts if rule.verdict == "allow" else all_texts)):
            hits.append(rule)
        elif rule.verdict != "allow" and any(map(rule.could_match, all_texts)):
            possible.append(rule)
    yield _strictest_rule(hits, default)
    is_configured = any(not rule.builtin for rule in hits)
    yield from (Judgement("ask", str(rule)) for rule in possible if not (rule.builtin and is_configured))


def _strictest_rule(hits: Sequence[Rule], default: Verdict) -> Judgement:
    configured = [rule for rule in hits if not rule.builtin]
    return strictest([Judgement(rule.verdict, str(rule)) for rule in configured or hits], default)


def _subject_texts(use: ToolUse) -> list[str]:
    """Return what patterns are compared with: the subject, or all arguments as JSON and each text among them."""
    if not use.subject:
        texts = [value for value in use.args.values() if isinstance(value, str)]
        return [json.dumps(use.args, ensure_ascii=False, sort_keys=True, default=str), *texts]
    if paths := use.paths():
        return ["\n".join(map(canonical_path, paths))]
    value = str(use.args.get(use.subject.argument, ""))
    if use.subject.kind == "skill":  # `_` and `-` are one
        return [value.replace("_", "-"), value.replace("-", "_"), value]
    return [value]
