"""Calculate formulas of a spreadsheet: the common functions, exactly as far as they are known here.

What is not known (other functions, names of tables, arrays that spill) makes a cell `UNKNOWN`, never a wrong value.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, NamedTuple

MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384
MAX_FORMULA_CHARS, MAX_NESTING = 8192, 60
TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<text>"(?:[^"]|"")*")|(?P<error>\#[A-Z/0]+[!?]?)
    |(?P<sheet>'(?:[^']|'')+'!|[A-Za-z_\u0080-\uffff][\w.\u0080-\uffff]*!)
    |(?P<range>\$?[A-Za-z]{1,3}\$?\d{1,7}:\$?[A-Za-z]{1,3}\$?\d{1,7}|\$?[A-Za-z]{1,3}:\$?[A-Za-z]{1,3}(?![\w(])|\$?\d{1,7}:\$?\d{1,7})
    |(?P<cell>\$?[A-Za-z]{1,3}\$?\d{1,7}(?![\w(.]))
    |(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<function>[A-Za-z_][\w.]*)(?=\()|(?P<name>[A-Za-z_\u0080-\uffff\\][\w.\u0080-\uffff]*)
    |(?P<sign><=|>=|<>|[-+*/^&=<>%(),;])""",
    re.VERBOSE,
)
PRECEDENCE = {"=": 1, "<>": 1, "<": 1, ">": 1, "<=": 1, ">=": 1, "&": 2, "+": 3, "-": 3, "*": 4, "/": 4, "^": 5}


class CellError(NamedTuple):
    """An error value, such as #DIV/0!."""

    code: str


class Unknown:
    """A value that this program does not calculate."""


class Area(NamedTuple):
    """Cells of a sheet, from 1."""

    sheet: str
    top: int
    left: int
    bottom: int
    right: int


class NotUnderstood(Exception):
    """A formula that this program does not calculate. The text says what it does not know."""


UNKNOWN = Unknown()
DIVISION, VALUE, NOT_AVAILABLE = CellError("#DIV/0!"), CellError("#VALUE!"), CellError("#N/A")
NUMBER, REFERENCE, NAME = CellError("#NUM!"), CellError("#REF!"), CellError("#NAME?")


def column_number(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def parse_area(text: str, sheet: str) -> Area:
    """Return the cells of A1, A1:B2, A:B or 1:2."""
    ends = text.replace("$", "").split(":")
    places = []
    for end, (row, column) in zip((ends[0], ends[-1]), ((1, 1), (MAX_ROWS, MAX_COLUMNS))):
        match = re.fullmatch(r"([A-Za-z]*)(\d*)", end)
        if not match:
            raise NotUnderstood(f"the reference {text}")
        places.append((int(match[2]) if match[2] else row, column_number(match[1]) if match[1] else column))
    (top, left), (bottom, right) = places
    if max(top, bottom) > MAX_ROWS or max(left, right) > MAX_COLUMNS or not min(top, bottom):
        raise NotUnderstood(f"the reference {text}")
    return Area(sheet, min(top, bottom), min(left, right), max(top, bottom), max(left, right))


class Parser:
    """Translates a formula into steps in the order of calculation (a stack machine)."""

    def __init__(self, formula: str, sheet: str, names: dict[str, str]) -> None:
        if len(formula) > MAX_FORMULA_CHARS:
            raise NotUnderstood("a formula of this length")
        self.sheet, self.names, self._place, self._depth = sheet, names, 0, 0
        self.steps: list[tuple[str, Any, int]] = []
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(formula):
            match = TOKEN.match(formula, place)
            if not match:
                raise NotUnderstood(f"{formula[place : place + 10]!r}")
            place = match.end()
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match[0]))
        self._expression(0)
        if self._place != len(self.tokens):
            raise NotUnderstood(f"{self.tokens[self._place][1]!r} at this place")

    def _next(self) -> tuple[str, str]:
        return self.tokens[self._place] if self._place < len(self.tokens) else ("", "")

    def _expression(self, least: int) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING * 2:
            raise NotUnderstood("so many levels")
        self._operand()
        while (sign := self._next()[1]) in PRECEDENCE and self._next()[0] == "sign" and PRECEDENCE[sign] > least:
            self._place += 1
            self._expression(PRECEDENCE[sign])
            self.steps.append(("operator", sign, 2))
        self._depth -= 1

    def _operand(self) -> None:
        signs = []
        while self._next() in (("sign", "-"), ("sign", "+")):
            signs.append(self._next()[1])
            self._place += 1
        kind, text = self._next()
        self._place += 1
        if (kind, text) == ("sign", "("):
            self._expression(0)
            self._expect(")")
        elif kind == "function":
            self._call(text)
        elif kind in ("sheet", "cell", "range"):
            self._reference(kind, text)
        elif kind == "text":
            self.steps.append(("value", text[1:-1].replace('""', '"'), 0))
        elif kind == "number":
            self.steps.append(("value", float(text), 0))
        elif kind == "error":
            self.steps.append(("value", CellError(text), 0))
        elif kind == "name" and text.upper() in ("TRUE", "FALSE"):
            self.steps.append(("value", text.upper() == "TRUE", 0))
        elif kind == "name" and (target := self.names.get(text.lower())):
            self._named(target)
        else:
            raise NotUnderstood(f"the name {text}" if kind == "name" else f"{text!r} at this place")
        while self._next() == ("sign", "%"):
            self._place += 1
            self.steps.append(("operator", "%", 1))
        self.steps += [("operator", "negative", 1) for sign in signs if sign == "-"]

    def _named(self, target: str) -> None:
        inner = Parser(target, "", {})
        if len(inner.steps) != 1:
            raise NotUnderstood(f"the name of {target}")
        self.steps += inner.steps

    def _reference(self, kind: str, text: str) -> None:
        sheet = self.sheet
        if kind == "sheet":
            sheet = text[1:-2].replace("''", "'") if text.startswith("'") else text[:-1]
            if "[" in sheet:
                raise NotUnderstood("a reference to another file")
            kind, text = self._next()
            self._place += 1
            if kind == "error":
                self.steps.append(("value", CellError(text), 0))
                return
            if kind not in ("cell", "range"):
                raise NotUnderstood(f"the reference {sheet}!{text}")
        self.steps.append(("area", parse_area(text, sheet), 0))

    def _call(self, name: str) -> None:
        name = name.upper().replace("_XLFN.", "")
        if name not in FUNCTIONS:
            raise NotUnderstood(f"the function {name}")
        self._expect("(")
        count = 0
        while self._next() != ("sign", ")"):
            if self._next()[1] in (",", ";"):
                self.steps.append(("value", None, 0))
            else:
                self._expression(0)
            count += 1
            if self._next()[1] not in (",", ";"):
                break
            self._place += 1
            if self._next() == ("sign", ")"):
                self.steps.append(("value", None, 0))
                count += 1
        self._expect(")")
        self.steps.append(("call", name, count))

    def _expect(self, sign: str) -> None:
        if self._next() != ("sign", sign):
            raise NotUnderstood(f"a formula without its {sign!r}")
        self._place += 1


class Cells(NamedTuple):
    """How functions read cells: the value of one, and those that are not empty in an area."""

    value: Callable[[str, int, int], Any]
    filled: Callable[[Area], Iterator[tuple[int, int, Any]]]


class Matrix(NamedTuple):
    """Values that were calculated together, row by row."""

    rows: list[list[Any]]


def run_steps(steps: list[tuple[str, Any, int]], cells: Cells) -> Any:
    """Calculate a formula. Returns a single value."""
    stack: list[Any] = []
    for kind, what, count in steps:
        if kind in ("value", "area"):
            stack.append(what)
            continue
        given = stack[len(stack) - count :] if count else []
        del stack[len(stack) - count :]
        stack.append(operate(what, given, cells) if kind == "operator" else call(what, given, cells))
    result = stack.pop()
    if isinstance(result, Area):
        result = single(result, cells)
    if isinstance(result, Matrix):
        return UNKNOWN
    return 0.0 if result is None else result


def call(name: str, given: list[Any], cells: Cells) -> Any:
    function, least, most = FUNCTIONS[name]
    if not least <= len(given) <= most:
        return UNKNOWN
    try:
        return function(given, cells)
    except Stopped as stopped:
        return stopped.value
    except (OverflowError, InvalidOperation):
        return NUMBER


class Stopped(Exception):
    """A function ends with this value: an error of one of its arguments."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def single(value: Any, cells: Cells) -> Any:
    """Return one value of an argument."""
    if isinstance(value, Area):
        if (value.top, value.left) != (value.bottom, value.right):
            return UNKNOWN
        return cells.value(value.sheet, value.top, value.left)
    return UNKNOWN if isinstance(value, Matrix) else value


def number(value: Any, cells: Cells) -> float:
    """Return an argument as a number. Raises Stopped."""
    value = single(value, cells)
    if isinstance(value, (CellError, Unknown)):
        raise Stopped(value)
    if isinstance(value, str):
        try:
            return float(value.strip())
        except ValueError:
            raise Stopped(VALUE) from None
    return float(value or 0)


def text(value: Any, cells: Cells) -> str:
    value = single(value, cells)
    if isinstance(value, (CellError, Unknown)):
        raise Stopped(value)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}" if value != int(value) or abs(value) >= 1e15 else str(int(value))
    return "" if value is None else str(value)


def truth(value: Any, cells: Cells) -> bool:
    value = single(value, cells)
    if isinstance(value, str):
        if value.upper() not in ("TRUE", "FALSE"):
            raise Stopped(VALUE)
        return value.upper() == "TRUE"
    return bool(number(value, cells))


def matrix(value: Any, cells: Cells) -> list[list[Any]]:
    """Return the rows of an argument; only a small area is spread out."""
    if isinstance(value, Matrix):
        return value.rows
    if not isinstance(value, Area):
        return [[value]]
    if (value.bottom - value.top + 1) * (value.right - value.left + 1) > 200_000:
        raise Stopped(UNKNOWN)
    rows = range(value.top, value.bottom + 1)
    return [[cells.value(value.sheet, row, column) for column in range(value.left, value.right + 1)] for row in rows]


def operate(sign: str, given: list[Any], cells: Cells) -> Any:
    """Apply an operator, to each value of an area or matrix if there is one."""
    wide = [
        isinstance(value, Matrix)
        or (isinstance(value, Area) and (value.top, value.left) != (value.bottom, value.right))
        for value in given
    ]
    try:
        if not any(wide):
            return operate_single(sign, given, cells)
        rows = [matrix(value, cells) if each else None for value, each in zip(given, wide)]
        shapes = {(len(each), len(each[0])) for each in rows if each}
        if len(shapes) != 1:
            return UNKNOWN
        down, across = shapes.pop()
        return Matrix([
            [
                operate_single(sign, [each[y][x] if each else value for each, value in zip(rows, given)], cells)
                for x in range(across)
            ]
            for y in range(down)
        ])  # fmt: skip
    except Stopped as stopped:
        return stopped.value


def operate_single(sign: str, given: list[Any], cells: Cells) -> Any:
    try:
        if sign == "&":
            return text(given[0], cells) + text(given[1], cells)
        if sign in ("=", "<>", "<", ">", "<=", ">="):
            return compare(sign, single(given[0], cells), single(given[1], cells))
        numbers = [number(value, cells) for value in given]
        if sign == "/":
            return DIVISION if numbers[1] == 0 else numbers[0] / numbers[1]
        if sign == "^":
            result = numbers[0] ** numbers[1] if numbers[0] or numbers[1] > 0 else NUMBER
            return NUMBER if isinstance(result, complex) else result
        if sign in ("%", "negative"):
            return numbers[0] / 100 if sign == "%" else -numbers[0]
        return (
            numbers[0] + numbers[1]
            if sign == "+"
            else numbers[0] - numbers[1]
            if sign == "-"
            else numbers[0] * numbers[1]
        )
    except Stopped as stopped:
        return stopped.value
    except OverflowError:
        return NUMBER


def sort_key(value: Any) -> tuple[int, Any]:
    """Return how a spreadsheet orders values: numbers, texts without case, truth."""
    if isinstance(value, bool):
        return 2, value
    return (1, value.lower()) if isinstance(value, str) else (0, float(value or 0))


def compare(sign: str, one: Any, other: Any) -> Any:
    for value in (one, other):
        if isinstance(value, (CellError, Unknown)):
            return value
    blank = {str: "", bool: False}
    one = blank.get(type(other), 0.0) if one is None else one
    other = blank.get(type(one), 0.0) if other is None else other
    left, right = sort_key(one), sort_key(other)
    return {"=": left == right, "<>": left != right, "<": left < right, ">": left > right, "<=": left <= right,
            ">=": left >= right}[sign]  # fmt: skip


def values_of(given: list[Any], cells: Cells) -> Iterator[tuple[Any, bool]]:
    """Return the values of arguments, and whether each was written into the formula itself."""
    for each in given:
        if isinstance(each, Area):
            yield from ((value, False) for _, _, value in cells.filled(each))
        elif isinstance(each, Matrix):
            yield from ((value, False) for row in each.rows for value in row)
        else:
            yield each, True


def numbers_of(given: list[Any], cells: Cells) -> list[float]:
    """Return what a sum adds: numbers of cells, and whatever was written into the formula. Raises Stopped."""
    found = []
    for value, direct in values_of(given, cells):
        if isinstance(value, (CellError, Unknown)):
            raise Stopped(value)
        if direct:
            found.append(number(value, cells))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(float(value))
    return found


def of_numbers(function: Callable[[list[float]], Any], empty: Any = 0.0) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        found = numbers_of(given, cells)
        return function(found) if found else empty

    return apply


def of_one(function: Callable[[float], Any]) -> Callable[[list[Any], Cells], Any]:
    return lambda given, cells: function(number(given[0], cells))


def median(found: list[float]) -> float:
    ordered, middle = sorted(found), len(found) // 2
    return ordered[middle] if len(found) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def deviation(found: list[float], whole: bool) -> Any:
    if len(found) - (not whole) < 1:
        return DIVISION
    mean = math.fsum(found) / len(found)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in found) / (len(found) - (not whole)))


def rounded(way: str) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        value, digits = number(given[0], cells), int(number(given[1], cells)) if len(given) > 1 else 0
        step = Decimal(1).scaleb(-max(min(digits, 15), -15))
        shifted = Decimal(repr(value)) / step
        whole = shifted.to_integral_value(ROUND_HALF_UP) if way == "half" else Decimal(math.trunc(shifted))
        if way == "up" and whole != shifted:
            whole += 1 if value > 0 else -1
        return float(whole * step)

    return apply


def if_function(given: list[Any], cells: Cells) -> Any:
    chosen = given[1] if truth(given[0], cells) else given[2] if len(given) > 2 else False
    return 0.0 if chosen is None else chosen


def ifs(given: list[Any], cells: Cells) -> Any:
    for place in range(0, len(given) - 1, 2):
        if truth(given[place], cells):
            return given[place + 1]
    return NOT_AVAILABLE


def caught(codes: tuple[str, ...]) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        value = single(given[0], cells)
        failed = isinstance(value, CellError) and (not codes or value.code in codes)
        return (given[1] if len(given) > 1 else "") if failed else value

    return apply


def every(given: list[Any], cells: Cells, any_is_enough: bool = False) -> Any:
    found = []
    for value, direct in values_of(given, cells):
        if isinstance(value, (CellError, Unknown)):
            raise Stopped(value)
        if direct or isinstance(value, (bool, float, int)):
            found.append(truth(value, cells))
    if not found:
        return VALUE
    return any(found) if any_is_enough else all(found)


def wildcard(pattern: str, words: str) -> bool:
    """Compare with * and ?, without going back more than one star."""
    p = w = 0
    star = mark = -1
    while w < len(words):
        literal = p + 1 < len(pattern) and pattern[p] == "~"
        sign = pattern[p + 1] if literal else pattern[p : p + 1]
        if not literal and sign == "*":
            star, mark, p = p, w, p + 1
        elif sign and (sign == words[w] or (sign == "?" and not literal)):
            p, w = p + 1 + literal, w + 1
        elif star >= 0:
            p, mark = star + 1, mark + 1
            w = mark
        else:
            return False
    return not pattern[p:].strip("*")


def criterion(given: Any) -> Callable[[Any], bool]:
    """Return the test of SUMIF and its kin: a value, or a text such as ">=5"."""
    sign, wanted = "=", given
    if isinstance(given, str):
        match = re.match(r"(<=|>=|<>|=|<|>)?(.*)", given, re.DOTALL)
        sign, wanted = (match[1] or "=", match[2]) if match else ("=", given)
        try:
            wanted = float(wanted)
        except ValueError:
            if wanted.upper() in ("TRUE", "FALSE"):
                wanted = wanted.upper() == "TRUE"
    if isinstance(wanted, str) and sign in ("=", "<>"):
        pattern = wanted.lower()

        def same(value: Any) -> bool:
            found = wildcard(pattern, value.lower()) if isinstance(value, str) else value is None and not pattern
            return found == (sign == "=")

        return same

    def test(value: Any) -> bool:
        if sign == "<>" and type(value) is not type(wanted):
            return True
        if (
            value is None
            or isinstance(value, (CellError, Unknown))
            or isinstance(value, str) != isinstance(wanted, str)
        ):
            return False
        return bool(compare(sign, value, wanted))

    return test


def conditional(kind: str, several: bool) -> Callable[[list[Any], Cells], Any]:
    """Return SUMIF, COUNTIF, AVERAGEIF, or with `several`, SUMIFS and so on."""

    def apply(given: list[Any], cells: Cells) -> Any:
        if several:
            target, pairs = (None, given) if kind == "count" else (given[0], given[1:])
        else:
            target, pairs = (given[2] if len(given) > 2 else given[0]), given[:2]
        if len(pairs) % 2 or not all(isinstance(each, Area) for each in pairs[::2]):
            return UNKNOWN
        first: Area = pairs[0]
        height, width = shape(first)
        if several and any(shape(each) != (height, width) for each in [*pairs[::2], *([target] if target else [])]):
            return VALUE
        wanted = [single(each, cells) for each in pairs[1::2]]
        if bad := next((each for each in wanted if isinstance(each, (CellError, Unknown))), None):
            return bad
        tests = [criterion(each) for each in wanted]
        hits: dict[tuple[int, int], int] = {}
        for area, test in zip(pairs[::2], tests):
            if test(None):
                return UNKNOWN  # empty cells count, too: more of them than can be looked at
            for row, column, value in cells.filled(area):
                if isinstance(value, Unknown):
                    return UNKNOWN
                if test(value):
                    place = row - area.top, column - area.left
                    hits[place] = hits.get(place, 0) + 1
        places = [place for place, count in hits.items() if count == len(tests)]
        if kind == "count":
            return float(len(places))
        if not isinstance(target, Area):
            return UNKNOWN
        found = []
        for row, column in places:
            value = cells.value(target.sheet, target.top + row, target.left + column)
            if isinstance(value, (CellError, Unknown)):
                return value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found.append(float(value))
        if kind == "average":
            return math.fsum(found) / len(found) if found else DIVISION
        return math.fsum(found) if kind == "sum" else (max if kind == "max" else min)(found, default=0.0)

    return apply


def shape(area: Area) -> tuple[int, int]:
    return area.bottom - area.top, area.right - area.left


def sum_product(given: list[Any], cells: Cells) -> Any:
    sheets = [matrix(each, cells) for each in given]
    if len({(len(rows), len(rows[0])) for rows in sheets}) != 1:
        return VALUE
    total = []
    for y, row in enumerate(sheets[0]):
        for x in range(len(row)):
            factors = [rows[y][x] for rows in sheets]
            if bad := next((each for each in factors if isinstance(each, (CellError, Unknown))), None):
                return bad
            total.append(math.prod(float(each) if is_number(each) else 0.0 for each in factors))
    return math.fsum(total)


def find_in(wanted: Any, line: list[Any], way: int) -> int | None:
    """Return the place of a value: 0 exactly, 1 the last not larger one, -1 the last not smaller one."""
    best = None
    for place, value in enumerate(line):
        if isinstance(value, Unknown):
            raise Stopped(UNKNOWN)
        if value is None or isinstance(value, CellError):
            continue
        if isinstance(wanted, str) and isinstance(value, str) and way == 0:
            if wildcard(wanted.lower(), value.lower()):
                return place
        elif sort_key(value)[0] == sort_key(wanted)[0]:
            if way == 0 and sort_key(value) == sort_key(wanted):
                return place
            if (way == 1 and sort_key(value) <= sort_key(wanted)) or (
                way == -1 and sort_key(value) >= sort_key(wanted)
            ):
                best = place
            elif way:
                break
    return best


def used(area: Area, cells: Cells) -> Area:
    """Return an area without its empty end, so that whole columns can be searched."""
    places = [(row, column) for row, column, _ in cells.filled(area)]
    bottom = max((row for row, _ in places), default=area.top)
    right = max((column for _, column in places), default=area.left)
    return area._replace(bottom=min(area.bottom, bottom), right=min(area.right, right))


def lookup_value(value: Any, cells: Cells) -> Any:
    value = single(value, cells)
    if isinstance(value, (CellError, Unknown)):
        raise Stopped(value)
    return 0.0 if value is None else value


def vlookup(given: list[Any], cells: Cells, across: bool = False) -> Any:
    wanted, area = lookup_value(given[0], cells), given[1]
    if not isinstance(area, Area):
        return UNKNOWN
    place = int(number(given[2], cells))
    way = 1 if len(given) < 4 or (given[3] is not None and truth(given[3], cells)) else 0
    if place < 1 or place > (area.bottom - area.top if across else area.right - area.left) + 1:
        return REFERENCE if place > 0 else VALUE
    if across:
        line = used(area._replace(bottom=area.top), cells)
        found = find_in(wanted, matrix(line, cells)[0], way)
        return NOT_AVAILABLE if found is None else cells.value(area.sheet, area.top + place - 1, area.left + found)
    line = used(area._replace(right=area.left), cells)
    found = find_in(wanted, [row[0] for row in matrix(line, cells)], way)
    return NOT_AVAILABLE if found is None else cells.value(area.sheet, area.top + found, area.left + place - 1)


def line_of(area: Any, cells: Cells) -> list[Any]:
    if not isinstance(area, Area) or (area.top != area.bottom and area.left != area.right):
        raise Stopped(UNKNOWN)
    return [value for row in matrix(used(area, cells), cells) for value in row]


def match_function(given: list[Any], cells: Cells) -> Any:
    way = int(number(given[2], cells)) if len(given) > 2 else 1
    found = find_in(lookup_value(given[0], cells), line_of(given[1], cells), way)
    return NOT_AVAILABLE if found is None else float(found + 1)


def index_function(given: list[Any], cells: Cells) -> Any:
    area = given[0]
    if not isinstance(area, Area):
        return UNKNOWN
    row = int(number(given[1], cells))
    column = int(number(given[2], cells)) if len(given) > 2 else 0
    if len(given) == 2 and area.top == area.bottom:
        row, column = 1, row
    if not column and area.left == area.right:
        column = 1
    if not row and area.top == area.bottom:
        row = 1
    if row < 1 or column < 1:
        return UNKNOWN
    if area.top + row - 1 > area.bottom or area.left + column - 1 > area.right:
        return REFERENCE
    return cells.value(area.sheet, area.top + row - 1, area.left + column - 1)


def xlookup(given: list[Any], cells: Cells) -> Any:
    if len(given) > 4 and given[4] is not None and number(given[4], cells):
        return UNKNOWN
    found = find_in(lookup_value(given[0], cells), line_of(given[1], cells), 0)
    if found is None:
        return given[3] if len(given) > 3 and given[3] is not None else NOT_AVAILABLE
    area = given[2]
    if not isinstance(area, Area) or (area.top != area.bottom and area.left != area.right):
        return UNKNOWN
    down = area.left == area.right
    return cells.value(area.sheet, area.top + (found if down else 0), area.left + (0 if down else found))


def part_of_text(kind: str) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        words = text(given[0], cells)
        if kind == "MID":
            start, count = int(number(given[1], cells)), int(number(given[2], cells))
            return VALUE if start < 1 or count < 0 else words[start - 1 : start - 1 + count]
        count = int(number(given[1], cells)) if len(given) > 1 else 1
        if count < 0:
            return VALUE
        return words[:count] if kind == "LEFT" else words[max(len(words) - count, 0) :]

    return apply


def joined(given: list[Any], cells: Cells) -> str:
    return "".join(text(value, cells) for value, _ in values_of(given, cells))[:32_767]


def text_join(given: list[Any], cells: Cells) -> str:
    words = [text(value, cells) for value, _ in values_of(given[2:], cells)]
    return text(given[0], cells).join(each for each in words if each or not truth(given[1], cells))[:32_767]


def day_of(serial: float) -> datetime.date:
    """Return the date of a number of days. Raises Stopped before 1 March 1900, where spreadsheets count wrongly."""
    if not 61 <= serial < 2_958_466:
        raise Stopped(UNKNOWN)
    return datetime.date(1899, 12, 30) + datetime.timedelta(days=int(serial))


def date_function(given: list[Any], cells: Cells) -> Any:
    year, month, day = (int(number(each, cells)) for each in given)
    if not 1900 < year < 9999 or abs(month) > 9999 or abs(day) > 99_999:
        return UNKNOWN
    years, months = divmod(month - 1, 12)
    first = datetime.date(year + years, months + 1, 1) + datetime.timedelta(days=day - 1)
    return float((first - datetime.date(1899, 12, 30)).days)


def count_blank(given: list[Any], cells: Cells) -> Any:
    area = given[0]
    if not isinstance(area, Area):
        return UNKNOWN
    filled = sum(1 for _, _, value in cells.filled(area) if value not in (None, ""))
    return float((area.bottom - area.top + 1) * (area.right - area.left + 1) - filled)


def counted(all_kinds: bool) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        found = 0
        for value, _ in values_of(given, cells):
            if isinstance(value, Unknown):
                return UNKNOWN
            plain = isinstance(value, (int, float)) and not isinstance(value, bool)
            found += value is not None if all_kinds else plain
        return float(found)

    return apply


def checked(test: Callable[[Any], bool]) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        value = single(given[0], cells)
        return UNKNOWN if isinstance(value, Unknown) else test(value)

    return apply


def nth(largest: bool) -> Callable[[list[Any], Cells], Any]:
    def apply(given: list[Any], cells: Cells) -> Any:
        found, place = sorted(numbers_of(given[:1], cells), reverse=largest), int(number(given[1], cells))
        return found[place - 1] if 1 <= place <= len(found) else NUMBER

    return apply


def modulo(given: list[Any], cells: Cells) -> Any:
    value, divisor = number(given[0], cells), number(given[1], cells)
    return DIVISION if divisor == 0 else value - divisor * math.floor(value / divisor)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


MANY = 255
FUNCTIONS: dict[str, tuple[Callable[[list[Any], Cells], Any], int, int]] = {
    "SUM": (of_numbers(math.fsum), 1, MANY), "MIN": (of_numbers(min), 1, MANY), "MAX": (of_numbers(max), 1, MANY),
    "PRODUCT": (of_numbers(math.prod), 1, MANY), "MEDIAN": (of_numbers(median, NUMBER), 1, MANY),
    "AVERAGE": (of_numbers(lambda found: math.fsum(found) / len(found), DIVISION), 1, MANY),
    "STDEV": (of_numbers(lambda found: deviation(found, False), DIVISION), 1, MANY),
    "STDEV.S": (of_numbers(lambda found: deviation(found, False), DIVISION), 1, MANY),
    "STDEV.P": (of_numbers(lambda found: deviation(found, True), DIVISION), 1, MANY),
    "LARGE": (nth(True), 2, 2), "SMALL": (nth(False), 2, 2), "SUMPRODUCT": (sum_product, 1, MANY),
    "COUNT": (counted(False), 1, MANY), "COUNTA": (counted(True), 1, MANY), "COUNTBLANK": (count_blank, 1, 1),
    "SUMIF": (conditional("sum", False), 2, 3), "SUMIFS": (conditional("sum", True), 3, MANY),
    "COUNTIF": (conditional("count", False), 2, 2), "COUNTIFS": (conditional("count", True), 2, MANY),
    "AVERAGEIF": (conditional("average", False), 2, 3), "AVERAGEIFS": (conditional("average", True), 3, MANY),
    "MAXIFS": (conditional("max", True), 3, MANY), "MINIFS": (conditional("min", True), 3, MANY),
    "IF": (if_function, 2, 3), "IFS": (ifs, 2, MANY), "IFERROR": (caught(()), 1, 2), "IFNA": (caught(("#N/A",)), 1, 2),
    "AND": (every, 1, MANY), "OR": (lambda given, cells: every(given, cells, True), 1, MANY),
    "NOT": (lambda given, cells: not truth(given[0], cells), 1, 1),
    "TRUE": (lambda given, cells: True, 0, 0), "FALSE": (lambda given, cells: False, 0, 0),
    "NA": (lambda given, cells: NOT_AVAILABLE, 0, 0), "PI": (lambda given, cells: math.pi, 0, 0),
    "ROUND": (rounded("half"), 2, 2), "ROUNDUP": (rounded("up"), 2, 2), "ROUNDDOWN": (rounded("down"), 2, 2),
    "TRUNC": (rounded("down"), 1, 2), "INT": (of_one(lambda value: float(math.floor(value))), 1, 1),
    "ABS": (of_one(abs), 1, 1), "SQRT": (of_one(lambda value: math.sqrt(value) if value >= 0 else NUMBER), 1, 1),
    "EXP": (of_one(math.exp), 1, 1), "LN": (of_one(lambda value: math.log(value) if value > 0 else NUMBER), 1, 1),
    "LOG10": (of_one(lambda value: math.log10(value) if value > 0 else NUMBER), 1, 1),
    "SIGN": (of_one(lambda value: float((value > 0) - (value < 0))), 1, 1), "MOD": (modulo, 2, 2),
    "POWER": (lambda given, cells: operate_single("^", given, cells), 2, 2),
    "VLOOKUP": (vlookup, 3, 4), "HLOOKUP": (lambda given, cells: vlookup(given, cells, True), 3, 4),
    "MATCH": (match_function, 2, 3), "INDEX": (index_function, 2, 3), "XLOOKUP": (xlookup, 3, 5),
    "LEN": (lambda given, cells: float(len(text(given[0], cells))), 1, 1),
    "LEFT": (part_of_text("LEFT"), 1, 2), "RIGHT": (part_of_text("RIGHT"), 1, 2), "MID": (part_of_text("MID"), 3, 3),
    "UPPER": (lambda given, cells: text(given[0], cells).upper(), 1, 1),
    "LOWER": (lambda given, cells: text(given[0], cells).lower(), 1, 1),
    "TRIM": (lambda given, cells: " ".join(text(given[0], cells).split()), 1, 1),
    "CONCATENATE": (joined, 1, MANY), "CONCAT": (joined, 1, MANY), "TEXTJOIN": (text_join, 3, MANY),
    "EXACT": (lambda given, cells: text(given[0], cells) == text(given[1], cells), 2, 2),
    "VALUE": (lambda given, cells: number(given[0], cells), 1, 1), "DATE": (date_function, 3, 3),
    "YEAR": (of_one(lambda value: float(day_of(value).year)), 1, 1),
    "MONTH": (of_one(lambda value: float(day_of(value).month)), 1, 1),
    "DAY": (of_one(lambda value: float(day_of(value).day)), 1, 1),
    "ISBLANK": (checked(lambda value: value is None), 1, 1), "ISNUMBER": (checked(is_number), 1, 1),
    "ISTEXT": (checked(lambda value: isinstance(value, str)), 1, 1),
    "ISERROR": (checked(lambda value: isinstance(value, CellError)), 1, 1),
    "ISNA": (checked(lambda value: value == NOT_AVAILABLE), 1, 1),
}  # fmt: skip
