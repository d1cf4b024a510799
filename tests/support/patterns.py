"""Find every regular expression of the code, and the text on which it is slowest.

The texts are made from the pattern itself: what its parts match, repeated, behind what leads there, before what does
not match.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from re import _parser as sre_parse  # type: ignore[attr-defined]  # the parser of `re` itself
from types import FrameType
from typing import Any

from tests.support.growth import without_collection

ROOT = Path(__file__).parents[2]
FUNCTIONS = frozenset({"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
MAX_PUMPS, MAX_CHARS_OF_CLASS = 40, 3
PROBE_CHARS, SIZES = 1_000, (5_000, 10_000, 20_000, 40_000)
TRIES = 3
WORST = 4  # texts of a pattern that are measured at all sizes
PROBE_SECONDS, MEASURED_SECONDS, HOPELESS_SECONDS = 0.3, 0.02, 0.25
GROWTH = 3.0  # of the time when the text doubles; 2 is linear, 4 quadratic
ENDS = ("\0", "\n!")
HAND_WRITTEN = (*"[<\n`\\@=(", "- ", "* * * ", "](", "< ", "token", "a.", "a/", "1.", " \n", "--", "a:")


@dataclass(frozen=True)
class FoundPattern:
    """A regular expression with its place, such as `agent/web/quoting.py:quote_untrusted`, and how it is applied.

    `text` is empty where only a run knows it.
    """

    place: str
    text: str | bytes
    flags: int
    methods: frozenset[str]


class TooSlow(Exception):
    """A match used up its CPU time."""


# ------------------------------------------------------------ finding


def find_patterns(package: str) -> Iterator[FoundPattern]:
    """Yield the patterns of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        source = path.read_text("utf-8")
        if re.search(r"\bre\.\w+\(", source):
            yield from _patterns_of(path.relative_to(ROOT), ast.parse(source))


def _patterns_of(path: Path, tree: ast.Module) -> Iterator[FoundPattern]:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names = vars(importlib.import_module(".".join(path.with_suffix("").parts)))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.args):
            continue
        text = _evaluate(node.args[0], names)
        if isinstance(text, re.Pattern):  # `re.sub(_COMPILED, …)`
            continue
        flags = [word.value for word in node.keywords if word.arg == "flags"] or _positional_flags(node)
        name = _name_of(node, parents)
        uses = _uses(name, str(path)) if node.func.attr == "compile" else {node.func.attr}
        methods = frozenset(uses or {"search"})
        yield FoundPattern(
            f"{path}:{name}",
            "" if text is None else text,
            int(_evaluate(flags[0], names) or 0) if flags else 0,
            methods,
        )


def _positional_flags(node: ast.Call) -> Sequence[ast.expr]:
    assert isinstance(node.func, ast.Attribute)
    before = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(node.func.attr, 2)
    return node.args[before : before + 1]


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what an expression of a module is; of an f-string, a letter for each value that only runs know."""
    try:
        return eval(compile(ast.Expression(node), "pattern", "eval"), dict(names))  # noqa: S307  our own code
    except NameError:
        if not isinstance(node, ast.JoinedStr):
            return None
    parts = (_evaluate(each.value, names) if isinstance(each, ast.FormattedValue) else each for each in node.values)
    return "".join(str(each.value) if isinstance(each, ast.Constant) else str(each or "x") for each in parts)


def _name_of(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    """Return the constant that holds a pattern, or the function that uses it."""
    while node := parents.get(node):  # type: ignore[assignment]  # None ends it
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            return node.targets[0].id
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return node.name
    return "module"


def _uses(name: str, path: str) -> set[str]:
    """Return the methods that are called on a constant, in its file or where it is imported."""
    files = [ROOT / path]
    if not name.startswith("_"):
        files += [each for top in ("agent", "bot", "channels", "sandbox") for each in (ROOT / top).rglob("*.py")]
    return {found[1] for file in files for found in re.finditer(rf"\b{name}\.(\w+)\(", file.read_text("utf-8"))}


# ------------------------------------------------------------ texts


def hostile_texts(text: str) -> Iterator[Callable[[int], str]]:
    """Yield functions that make a text of about n characters from a pattern's own parts."""
    tree = list(sre_parse.parse(text))
    pumps = dict.fromkeys(each for each in _parts(tree) if each)
    chars = dict.fromkeys(char for each in pumps for char in each)
    pairs = [a + b for a in list(chars)[:4] for b in list(chars)[:4] if a != b]
    prefixes = dict.fromkeys(["", *(_sample(tree[:end]) for end in range(1, len(tree) + 1))])
    for pump in dict.fromkeys([*HAND_WRITTEN, *[*pumps][:MAX_PUMPS], *pairs]):
        for prefix in [*prefixes][:7]:
            yield from (partial(_repeat, prefix, pump, end) for end in ENDS)


def _repeat(prefix: str, pump: str, end: str, chars: int) -> str:
    return prefix + pump * (chars // len(pump)) + end


def _parts(items: Iterable[Any]) -> Iterator[str]:
    """Yield what the parts of a pattern match: each alone, and each part of a sequence up to its end."""
    items = list(items)
    for start in range(len(items)):
        yield _sample(items[start:])
        yield _sample(items[: start + 1])
    for operation, value in items:
        kind = str(operation)
        if kind == "IN":
            yield from _class_chars(value)
        elif kind == "BRANCH":
            for branch in value[1]:
                yield from _parts(branch)
        for inner in _inner(kind, value):
            yield _sample(inner) * 2
            yield from _parts(inner)


def _inner(kind: str, value: Any) -> list[Any]:
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [value[2]]
    if kind == "SUBPATTERN":
        return [value[3]]
    if kind in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    return [value] if kind == "ATOMIC_GROUP" else []


def _sample(items: Iterable[Any]) -> str:
    """Return a text that a sequence matches, with one round of each repetition."""
    out = ""
    for operation, value in items:
        kind = str(operation)
        if kind == "LITERAL":
            out += chr(value)
        elif kind == "NOT_LITERAL":
            out += "a" if value != ord("a") else "b"
        elif kind == "ANY":
            out += "a"
        elif kind == "IN":
            out += next(_class_chars(value), "")
        elif kind == "BRANCH":
            out += _sample(value[1][0])
        elif kind not in ("ASSERT", "ASSERT_NOT"):
            out += "".join(
                _sample(inner) * (max(1, value[0]) if "REPEAT" in kind else 1) for inner in _inner(kind, value)
            )
    return out


def _class_chars(items: Sequence[Any]) -> Iterator[str]:
    """Yield some characters of a class."""
    matches = re.compile("|".join(_class_sources(items)))
    negated = str(items[0][0]) == "NEGATE"
    candidates = [*"a1 _-./\n\t[]()<>*`'\"A:@=", *(chr(value) for kind, value in items if str(kind) == "LITERAL")]
    ranges = [chr(value[0]) for kind, value in items if str(kind) == "RANGE"]
    fitting = [char for char in [*ranges, *candidates] if bool(matches.fullmatch(char)) is not negated]
    yield from list(dict.fromkeys(fitting))[:MAX_CHARS_OF_CLASS]


def _class_sources(items: Sequence[Any]) -> Iterator[str]:
    for operation, value in items:
        kind = str(operation)
        if kind == "LITERAL":
            yield re.escape(chr(value))
        elif kind == "RANGE":
            yield f"[{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}]"
        elif kind == "CATEGORY":
            *negated, name = str(value).removeprefix("CATEGORY_").split("_")
            yield "\\" + (name[0].upper() if negated else name[0].lower())


# ------------------------------------------------------------ measuring


def slowness(found: FoundPattern) -> str:
    """Return how a pattern's time grows on its worst text; "" if no faster than the text."""
    if not found.text:
        return "it is made at run time, so it cannot be judged"
    source = found.text.decode("latin-1") if isinstance(found.text, bytes) else found.text
    compiled = re.compile(found.text, found.flags)
    timed: list[tuple[float, Callable[[int], str]]] = []
    for make in hostile_texts(source):
        timed.append((_seconds(compiled, found, make(PROBE_CHARS), PROBE_SECONDS), make))
        if timed[-1][0] >= PROBE_SECONDS:
            return f"does not end on {make(PROBE_CHARS)[:60]!r}…"
    timed.sort(key=lambda each: each[0], reverse=True)
    for _time, make in timed[:WORST]:
        for _ in range(TRIES):  # other programs only make a try slower
            if not (grown := _growth(compiled, found, make)):
                break
        else:
            return grown
    return ""


def _growth(compiled: re.Pattern[Any], found: FoundPattern, make: Callable[[int], str]) -> str:
    if _seconds(compiled, found, make(SIZES[-1]), 2 * MEASURED_SECONDS) <= MEASURED_SECONDS:
        return ""  # so is each shorter text
    before = 0.0
    for size in SIZES:
        text = make(size)
        now = min(_seconds(compiled, found, text) for _ in range(3 if before < MEASURED_SECONDS else 2))
        if now > HOPELESS_SECONDS or (now > MEASURED_SECONDS and before and now > GROWTH * before):
            shown = f"{text[:24]!r}…{text[-8:]!r}"
            return f"{size:,} characters {shown}: {1000 * now:.0f} ms, half of it {1000 * before:.0f} ms"
        before = now
    return ""


def _seconds(compiled: re.Pattern[Any], found: FoundPattern, text: str, limit: float = 2 * HOPELESS_SECONDS) -> float:
    """Return the CPU time of all ways in which the pattern is applied, at most `limit`, without garbage collection: a
    round over all that the tests have loaded takes longer than most patterns."""
    subject: Any = text.encode("utf-8") if isinstance(found.text, bytes) else text
    with without_collection():
        begun = time.thread_time()
        try:
            with _limited(limit):
                for method in found.methods:
                    if method in ("match", "fullmatch", "search"):
                        getattr(compiled, method)(subject)
                    else:
                        deque(compiled.finditer(subject), maxlen=0)
            return time.thread_time() - begun
        except TooSlow:
            return limit


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TooSlow when this much CPU time is used: `re` looks for signals while it matches."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    earlier = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, earlier)
