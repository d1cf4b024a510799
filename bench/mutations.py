"""One-line faults of a Python file, and marks that say which of its blocks ran."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

OPPOSITES: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}
QUIET = ("logger.", "log.", "logging.")  # lines of the log are no behaviour
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Fault:
    """A changed piece of a file; `block` is the first line of its innermost block, 0 outside of functions."""

    line: int
    block: int
    source: bytes
    start: int
    end: int
    new: bytes

    @property
    def text(self) -> str:
        """The changed file. Its other lines keep their numbers."""
        return (self.source[: self.start] + self.new + self.source[self.end :]).decode()

    @property
    def before(self) -> str:
        """The lines of the piece, as one."""
        return self._lines(self.source)

    @property
    def after(self) -> str:
        """The same lines, changed."""
        return self._lines(self.text.encode())

    def _lines(self, text: bytes) -> str:
        last = self.line + self.source[self.start : self.end].count(b"\n")
        return " ".join(line.strip() for line in text.decode().splitlines()[self.line - 1 : last])


def marked(text: str, path: str) -> ast.Module:
    """Return the tree of a file whose blocks add `path:line` to `__hits__`."""
    tree = ast.parse(text)
    for node in [
        inner for function in ast.walk(tree) if isinstance(function, FUNCTIONS) for inner in ast.walk(function)
    ]:
        for block in _blocks(node):
            if not isinstance(node, ast.ClassDef) and not _is_mark(block[0]):
                block.insert(0, ast.parse(f"__hits__.add({f'{path}:{block[0].lineno}'!r})").body[0])
                for each in ast.walk(block[0]):
                    each.__dict__.update({"lineno": block[1].lineno, "end_lineno": block[1].lineno})
    return tree


def _is_mark(statement: ast.stmt) -> bool:
    return ast.unparse(statement).startswith("__hits__.")


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value


def faults(text: str) -> Iterator[Fault]:
    """Return the faults of a file, in the order of its lines."""
    source = text.encode()
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    for node, replacement, block in _visit(ast.parse(text), 0):
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: PT018 # of an optional type
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        space = "\n" * (node.end_lineno - node.lineno)
        new = f"({replacement}{space})" if isinstance(node, ast.expr) else replacement + space
        yield Fault(node.lineno, block, source, start, end, new.encode())


def _visit(node: ast.AST, block: int) -> Iterator[tuple[ast.expr | ast.stmt, str, int]]:
    """Return nodes with what may replace them, and their blocks."""
    if isinstance(node, ast.JoinedStr | ast.pattern | ast.Assert):
        return
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(QUIET):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield from ((node, new, block) for new in _replacements(node))
    if isinstance(node, ast.If | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield node.test, f"not {ast.unparse(node.test)}", block
    inside = block or isinstance(node, FUNCTIONS)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (name == "args" and isinstance(node, FUNCTIONS)):
            continue  # types; and defaults, which belong to another block
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                is_block = isinstance(each, ast.stmt) and isinstance(value, list) and inside
                yield from _visit(each, value[0].lineno if is_block else block)
                if isinstance(each, ast.Return) and each.value and not isinstance(node, FUNCTIONS):
                    yield each, "pass", value[0].lineno


def _replacements(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Return what may stand in the place of an expression or statement."""
    match node:
        case ast.Compare(ops=[op]):
            for kind in OPPOSITES[type(op)]:
                yield _with(node, ops=[kind()])
        case ast.BoolOp():
            yield _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
            for each in node.values:
                yield _with(node, values=[value for value in node.values if value is not each])
        case ast.UnaryOp(op=ast.Not()):
            yield ast.unparse(node.operand)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield _with(node, func=ast.Name(NAMES[name]))
        case ast.BinOp(op=ast.Add()):
            yield _with(node, op=ast.Sub())
        case ast.BinOp(op=ast.Sub()):
            yield _with(node, op=ast.Add())
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            yield ast.unparse(node.left)
            yield ast.unparse(node.right)
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Expr(value=ast.Call() | ast.Await()):
            yield "pass"
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            if any(loop.ifs for loop in node.generators):
                bare = copy.deepcopy(node)
                for loop in bare.generators:
                    loop.ifs = []
                yield ast.unparse(bare)


def _with(node: ast.expr, **changed: object) -> str:
    new = copy.copy(node)
    new.__dict__.update(changed)
    return ast.unparse(new)
