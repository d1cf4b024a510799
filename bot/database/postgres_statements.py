"""Run the statements of units of work by libpq's own functions: each is prepared once, its values are sent beside it.

A unit has dozens of small statements. psycopg's cursors make objects for each of them, for its values and its columns,
and the server parses and plans it again: together that takes several times what the statement itself does. Behind a
pooler nothing is prepared. The functions of libpq, the loaders and the errors are psycopg's (decision 181).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from types import NoneType
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from bot.database.database import StatementError, StorageError
from bot.database.dialect import spell_for_postgresql
from bot.database.postgres_session import PARAMETER, NamedRow, own_error, without_nul

MAX_PREPARED = 400  # statements that the session keeps, with the plan of each
PREPARED_FROM = 3  # times that a statement has come; many have as many parameters as there are values, and come once
MAX_COUNTED = 2_000  # statements whose times are counted
OUTDATED = "RevalidateCachedQuery"  # where the server finds that another process has changed the columns of a table


class Oid(IntEnum):
    """The types of values. A text has that which its place asks for, as one that is written into a statement."""

    PLACE = 0
    BOOL = 16
    BYTEA = 17
    INT8 = 20
    FLOAT8 = 701
    TEXTS = 1009
    FLOATS = 1022


Encoded = tuple[Oid, bytes | None]


def _encode_text(value: str) -> Encoded:
    return Oid.PLACE, without_nul(value).encode()


def _encode_list(value: Sequence[Any]) -> Encoded:
    """Encode a list of texts, or of numbers."""
    if all(isinstance(each, str) for each in value):
        quoted = ('"{}"'.format(each.replace("\\", "\\\\").replace('"', '\\"')) for each in value)
        return Oid.TEXTS, _encode_text(f"{{{','.join(quoted)}}}")[1]
    return Oid.FLOATS, "{{{}}}".format(",".join(map(repr, value))).encode()


_ENCODERS: Mapping[type, Callable[[Any], Encoded]] = {
    str: _encode_text,
    bool: lambda value: (Oid.BOOL, b"t" if value else b"f"),
    int: lambda value: (Oid.INT8, b"%d" % value),
    float: lambda value: (Oid.FLOAT8, repr(float(value)).encode()),
    bytes: lambda value: (Oid.BYTEA, b"\\x%s" % value.hex().encode()),
    NoneType: lambda _value: (Oid.PLACE, None),
    list: _encode_list,
}


def encode(value: object) -> Encoded:
    """Return a value as the server reads it, with its type. Raises StatementError for what it has no type for."""
    if encoder := _ENCODERS.get(type(value)):
        return encoder(value)
    for kind, encoder in _ENCODERS.items():  # a subclass, such as an enumeration of texts
        if isinstance(value, kind):
            return encoder(value)
    raise StatementError(f"no statement takes a {type(value).__name__}")


class Spelled(NamedTuple):
    """A statement as the server reads it, and the names of its values in order."""

    text: bytes
    names: tuple[str, ...]


@lru_cache(maxsize=2048)
def number_parameters(sql: str) -> Spelled:
    """Return a statement as the server reads it."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if not found[1]:
            return found[0]
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    text = PARAMETER.sub(number, spell_for_postgresql(sql))
    return Spelled(text.encode(), tuple(names))


class Statements:
    """The statements of one session. `keeps`: they may be prepared, which not all poolers allow."""

    def __init__(self, connection: psycopg.Connection[NamedRow], *, keeps: bool) -> None:
        self._libpq = connection.pgconn
        self._loaders = Transformer(connection)
        self._keeps = keeps
        self._prepared: OrderedDict[tuple[bytes, tuple[Oid, ...]], bytes] = OrderedDict()  # to its name there
        self._times: dict[tuple[bytes, tuple[Oid, ...]], int] = {}
        self._names: dict[bytes, Mapping[str, int]] = {}  # of a prepared statement, of its columns
        self._count = 0
        self._outdated = False  # what is prepared there

    def control(self, statements: str) -> None:
        """Run statements that control the transaction. Raises psycopg.Error."""
        if self._outdated and self._libpq.transaction_status == TransactionStatus.IDLE:
            self._check(self._libpq.exec_(b"DEALLOCATE ALL"))
            self._outdated = False
        self._check(self._libpq.exec_(statements.encode()))

    def execute(self, sql: str, values: Mapping[str, Any] = {}) -> Sequence[NamedRow]:
        """Run a statement as `Execute` promises. Raises StatementError; StorageError ends the transaction."""
        try:
            text, names = number_parameters(sql)
            encoded = [encode(values[name]) for name in names]
            types = tuple(kind for kind, _data in encoded)
            data: list[Any] = [value for _kind, value in encoded]
            if name := self._prepare(text, types):
                return self._read(self._check(self._libpq.exec_prepared(name, data)), name)
            return self._read(self._check(self._libpq.exec_params(text, data, types)), b"")
        except KeyError as error:
            raise StatementError(f"the value of {error} is missing") from error
        except psycopg.Error as error:
            raise self._own(error) from error

    def _forget(self) -> None:
        for known in (self._prepared, self._times, self._names):
            known.clear()
        self._outdated = True

    def _own(self, error: psycopg.Error) -> StatementError | StorageError:
        """Return an error as `Execute` raises it."""
        if error.diag.source_function != OUTDATED:
            return own_error(error)
        self._forget()
        return StorageError(str(error))

    def _prepare(self, text: bytes, types: tuple[Oid, ...]) -> bytes:
        """Return the name of a prepared statement; b"" for one that does not come often."""
        key = (text, types)
        if name := self._prepared.get(key):
            self._prepared.move_to_end(key)
            return name
        if not self._keeps or not self._comes_often(key):
            return b""
        if len(self._prepared) >= MAX_PREPARED:
            _oldest, name = self._prepared.popitem(last=False)
            self._names.pop(name, None)
            self._check(self._libpq.exec_(b"DEALLOCATE " + name))
        self._count += 1
        name = b"fawn%d" % self._count
        self._check(self._libpq.prepare(name, text, types))
        self._prepared[key] = name
        return name

    def _comes_often(self, key: tuple[bytes, tuple[Oid, ...]]) -> bool:
        times = self._times.pop(key, 0) + 1
        if times >= PREPARED_FROM:
            return True
        if len(self._times) >= MAX_COUNTED:
            self._times.clear()
        self._times[key] = times
        return False

    def _read(self, result: PGresult, name: bytes) -> Sequence[NamedRow]:
        if result.status != ExecStatus.TUPLES_OK:
            return ()
        if not (columns := self._names.get(name)):
            columns = {(result.fname(number) or b"").decode(): number for number in range(result.nfields)}
            if name:
                self._names[name] = columns
        self._loaders.set_pgresult(result)
        return self._loaders.load_rows(0, result.ntuples, partial(NamedRow, columns))

    def _check(self, result: PGresult) -> PGresult:
        """Return a result. Raises psycopg.Error for a statement that failed."""
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return result
        raise error_from_result(result, encoding="utf-8")
