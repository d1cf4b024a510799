"""The audit: who did what, where and when, as a hash chain. It holds neither texts nor secrets.

`hash = SHA-256(hash of the row before ‖ seq ‖ body)`, over the stored bytes. A row is written by the transaction that
does the deed. People and chats are pseudonyms: `forget_person` deletes who one is, and the chain stays valid.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Any, NamedTuple

import orjson

from agent.messages import Thread
from bot.database.database import Execute, Row
from bot.database.dialect import APPEND_LATER, BODY_BYTES, HASH_BYTES, LOCK_AUDIT
from bot.database.rows import insert_row

DAY_MS = 86_400_000
EMPTY = bytes(32)  # the hash before the first row
ALIAS_BYTES, SALT_BYTES = 16, 16
ROWS_AT_ONCE = 8  # in a statement: PostgreSQL prepares one for each number
NAMED_FIELDS = ("who", "subject", "where")  # of an event: pseudonyms
_LAST = "(SELECT max(seq) FROM audit)"
_USE_NAMES = (  # the number of the next row is that after the last one, or after those that retention has deleted
    f"UPDATE audit_names SET used=coalesce({_LAST}, (SELECT max(seq) FROM audit_anchors), 0)+:rows"
    f" WHERE name IN ({{wanted}})"
    f" RETURNING name, alias, {_LAST} AS seq, (SELECT {HASH_BYTES} FROM audit WHERE seq={_LAST}) AS hash"
)
NEWEST = 1 << 62  # greater than the number of each row
_os_user: ContextVar[str] = ContextVar("os_user", default="")


class AuditKind(StrEnum):
    """What happened."""

    SERVICE_STARTED = "service.started"  # with digests of the rules in force
    CONFIG_CHANGED = "config.changed"
    MESSAGE = "message"
    TURN_ENDED = "turn.ended"
    TOOL_CALL = "tool.call"
    TOOL_RESULT = "tool.result"
    APPROVAL_ASKED = "approval.asked"
    APPROVAL_ANSWERED = "approval.answered"
    APPROVAL_EXPIRED = "approval.expired"
    GRANT_GIVEN = "grant.given"
    GRANT_REVOKED = "grant.revoked"
    HAND_OVER = "hand.over"  # of what waits for a person, to a deputy
    ACCOUNT_LINK = "account.link"  # began, ended, or a question was answered by it
    COMMAND = "command"
    CHOICE = "choice"  # of a model or an agent
    SKILL = "skill"
    PAIRING_ASKED = "pairing.asked"
    PAIRING_ACCEPTED = "pairing.accepted"
    PAIRING_DECLINED = "pairing.declined"
    PAIRING_REVOKED = "pairing.revoked"
    ACCESS_CHANGED = "access.changed"
    ACCESS_DENIED = "access.denied"
    BUDGET_REFUSED = "budget.refused"
    BUDGET_CHANGED = "budget.changed"
    SCHEDULE_CHANGED = "schedule.changed"
    SCHEDULE_FIRED = "schedule.fired"
    TASK_CHANGED = "task.changed"
    HOOK_TAKEN = "hook.taken"  # what another system posted became a post or a turn
    DELIVERY = "delivery"
    DEAD_LETTER = "dead.letter"
    DEAD_REQUEUED = "dead.requeued"
    DEAD_DROPPED = "dead.dropped"
    PERSON_FORGOTTEN = "person.forgotten"
    FEEDBACK = "feedback"  # 👍, 👎, or one that was taken back
    PUSH = "push"  # a notification outside of the chats
    BACKUP = "backup"
    RESTORE = "restore"
    DATABASE_COPIED = "database.copied"  # from one engine to the other
    DRILL = "drill"
    EGRESS = "egress.request"  # of a sandbox, by destination
    KEY_ADDED = "key.added"  # of the HTTP API
    KEY_REVOKED = "key.revoked"
    PAGE_LINK = "page.link"  # was made, with which one person signs in to the page
    PAGE_SIGNED_IN = "page.signed_in"
    PAGE_SIGNED_OUT = "page.signed_out"
    CHANNEL_SIGN_IN = "channel.sign_in"  # began on the page; a login ended, or another one counts
    PERSON_OFFBOARDED = "person.offboarded"
    PRUNED = "audit.pruned"  # older rows were deleted, up to `seq` with `hash`


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One deed. `who`, a platform id on the thread's channel, did it; it concerns `subject`, a `person_name`.

    `what` has short names of Fawn's own, numbers and digests, never a text that a person or a model wrote. `cost` is in
    millionths of the currency.
    """

    kind: AuditKind
    thread: Thread | None = None
    who: str = ""
    channel: str = ""  # of `who`; "": the thread's
    subject: str = ""
    run: int | None = None
    what: Mapping[str, int | str] = field(default_factory=dict)
    result: str = ""
    cost: int = 0


class AuditRow(NamedTuple):
    """A stored row. The hash covers `body` as it is stored."""

    seq: int
    body: bytes
    hash: bytes

    @property
    def event(self) -> dict[str, Any]:
        """What the body says. Raises ValueError for one that was damaged."""
        event: dict[str, Any] = orjson.loads(self.body)
        return event


def command_line() -> dict[str, int | str]:
    """Return what stands in place of a person for a command: the user of this machine who gave it."""
    return {"via": "command line", "user": _os_user.get() or user_name(os.geteuid())}


def use_os_user(uid: int) -> None:
    """Have commands of this context count as given by this user of the machine."""
    _os_user.set(user_name(uid))


def user_name(uid: int) -> str:
    """Return the name of a user of this machine; the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def digest(data: str | bytes) -> str:
    """Return the SHA-256 of a text that the audit itself must not hold."""
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")).hexdigest()


def chain_hash(before: bytes, seq: int, body: bytes) -> bytes:
    """Return the hash of a row."""
    return hashlib.sha256(before + seq.to_bytes(8, "big") + body).digest()


class DatedEvent(NamedTuple):
    """What a row of the audit will say, with the time when it happened."""

    names: Mapping[str, str]  # what becomes pseudonyms: the name of the field → the name
    fields: Mapping[str, Any]  # the others

    @classmethod
    def now(cls, event: AuditEvent) -> DatedEvent:
        """Date what happens now."""
        channel = event.channel or (event.thread.channel if event.thread else "")
        who, where = (person_name(channel, event.who) if event.who else ""), str(event.thread or "")
        names = {key: name for key, name in (("who", who), ("subject", event.subject), ("where", where)) if name}
        known = {"run": event.run, "what": event.what, "result": event.result, "cost": event.cost}
        fields = {"v": 1, "at": time.time_ns() // 1_000_000, "kind": event.kind}
        return cls(names, fields | {key: value for key, value in known.items() if value})

    def check(self) -> None:
        """Raise TypeError for what cannot be stored."""
        orjson.dumps((*self.names.values(), self.fields), option=orjson.OPT_SORT_KEYS)

    def body(self, aliases: Mapping[str, str]) -> bytes:
        """Return what is stored, with the pseudonyms of the names."""
        hidden = {key: aliases[name] for key, name in self.names.items()}
        return orjson.dumps({**self.fields, **hidden}, option=orjson.OPT_SORT_KEYS)


def record(execute: Execute, event: AuditEvent) -> None:
    """Append a row, in the transaction that does the deed: at its end, where others wait for the end of the chain."""
    dated = DatedEvent.now(event)
    if not execute(APPEND_LATER, {"event": dated}):
        append_rows(execute, [dated])


def append_rows(execute: Execute, events: Sequence[DatedEvent]) -> None:
    """Append rows: each continues the one before it. Other processes wait from here to the end of the transaction."""
    names = dict.fromkeys(name for event in events for name in event.names.values())
    (last, before), aliases = _append_to(execute, [*names], len(events))
    for first in range(0, len(events), ROWS_AT_ONCE):
        values: dict[str, Any] = {}
        lines = []
        for number, event in enumerate(events[first : first + ROWS_AT_ONCE]):
            last, body = last + 1, event.body(aliases)
            before = chain_hash(before, last, body)
            values |= {f"seq{number}": last, f"body{number}": body, f"hash{number}": before}
            lines.append(f":seq{number}, :body{number}, :hash{number}")
        wanted = "), (".join(lines)
        execute(f"INSERT INTO audit(seq, body, hash) VALUES ({wanted})", values)


def pruned_text(what: Mapping[str, object]) -> str:
    """Return what the signature of a row covers that says what retention deleted."""
    return f"pruned:{what.get('seq')}:{what.get('hash')}:{what.get('days')}"


def read_head(execute: Execute) -> tuple[int, bytes]:
    """Return number and hash of the last row."""
    rows = execute(f"SELECT seq, {HASH_BYTES} AS hash FROM audit WHERE seq={_LAST}", {})
    return _head_of(rows) or read_anchor(execute)


def _head_of(rows: Sequence[Row]) -> tuple[int, bytes] | None:
    return (int(rows[0]["seq"]), bytes(rows[0]["hash"])) if rows and rows[0]["hash"] is not None else None


def read_anchor(execute: Execute) -> tuple[int, bytes]:
    """Return number and hash of the row before the first one that is kept."""
    rows = execute("SELECT seq, hash FROM audit_anchors WHERE seq=(SELECT max(seq) FROM audit_anchors)", {})
    return (int(rows[0]["seq"]), bytes(rows[0]["hash"])) if rows else (0, EMPTY)


def read_page(execute: Execute, after: int, limit: int) -> Sequence[AuditRow]:
    """Return the rows that follow a number, in order."""
    sql = (
        f"SELECT seq, {BODY_BYTES} AS body, {HASH_BYTES} AS hash FROM audit WHERE seq>:after ORDER BY seq LIMIT :limit"
    )
    return [*map(AuditRow._make, execute(sql, {"after": after, "limit": limit}))]


def read_newest(execute: Execute, limit: int, before: int = NEWEST) -> Sequence[AuditRow]:
    """Return the newest rows before a number, the newest first."""
    sql = (
        f"SELECT seq, {BODY_BYTES} AS body, {HASH_BYTES} AS hash FROM audit WHERE seq<:before"
        " ORDER BY seq DESC LIMIT :limit"
    )
    return [*map(AuditRow._make, execute(sql, {"limit": limit, "before": before}))]


def prune_rows(execute: Execute, days: int, limit: int, sign: Callable[[str], str] = lambda _text: "") -> int:
    """Delete up to `limit` rows that are older than `days`, except the newest of these; return how many.

    The anchor keeps the hash that the next row continues. A row of the chain confirms it: moving the anchor alone does
    not hide a cut. Since an old row is kept, the first one that is kept shows that nothing newer was deleted.
    """
    rows = read_page(execute, read_anchor(execute)[0], limit + 1)
    before = time.time_ns() // 1_000_000 - days * DAY_MS
    old = [*takewhile(lambda row: row.event["at"] < before, rows)][:-1]
    if not old:
        return 0
    after, last = old[-1].seq, old[-1].hash
    what: dict[str, int | str] = {"seq": after, "hash": last.hex(), "days": days}
    if signature := sign(pruned_text(what)):
        what["signature"] = signature
    record(execute, AuditEvent(AuditKind.PRUNED, what=what))
    execute("DELETE FROM audit_anchors", {})
    execute("INSERT INTO audit_anchors(seq, hash) VALUES (:seq, :hash)", {"seq": after, "hash": last})
    execute("DELETE FROM audit WHERE seq<=:seq", {"seq": after})
    execute("DELETE FROM audit_names WHERE used<=:seq", {"seq": after})
    return len(old)


# ------------------------------------------------------------ pseudonyms


def person_name(channel: str, person: str) -> str:
    """Return what the pseudonym of a person stands for."""
    return f"{channel}:{person}"


def make_alias(name: str, salt: bytes) -> str:
    """Return the pseudonym of a name. Without the salt nobody can compute it, and nobody can claim it for another."""
    return hashlib.sha256(salt + name.encode("utf-8", "surrogatepass")).digest()[:ALIAS_BYTES].hex()


def _append_to(execute: Execute, names: Sequence[str], rows: int) -> tuple[tuple[int, bytes], dict[str, str]]:
    """Return the number and the hash of the last row, and the pseudonyms of the names that the next `rows` use.

    One statement does all of it where the names are known, as those of most rows are.
    """
    execute(LOCK_AUDIT, {})
    numbered = {f"name{number}": name for number, name in enumerate(names)}
    wanted = ", ".join(f":{each}" for each in numbered)
    known = execute(_USE_NAMES.format(wanted=wanted), {**numbered, "rows": rows}) if names else ()
    last, before = _head_of(known) or read_head(execute)
    found = {str(row["name"]): str(row["alias"]) for row in known}
    for name in names:
        if name not in found:
            salt = secrets.token_bytes(SALT_BYTES)
            found[name] = make_alias(name, salt)
            values = {"name": name, "used": last + rows, "alias": found[name], "salt": salt}
            insert_row(execute, "audit_names", "name", values)
    return (last, before), found


def read_names(execute: Execute) -> dict[str, tuple[str, bytes]]:
    """Return pseudonym → name and salt."""
    rows = execute("SELECT alias, name, salt FROM audit_names", {})
    return {str(row["alias"]): (str(row["name"]), bytes(row["salt"])) for row in rows}


def find_alias(execute: Execute, name: str) -> str:
    """Return the pseudonym of a name, "" where it has none."""
    rows = execute("SELECT alias FROM audit_names WHERE name=:name", {"name": name})
    return str(rows[0]["alias"]) if rows else ""


def find_aliases(execute: Execute, address: str) -> set[str]:
    """Return the pseudonyms of the places whose address begins so."""
    sql = "SELECT alias FROM audit_names WHERE name>=:first AND name<:first || '~'"
    return {str(row["alias"]) for row in execute(sql, {"first": address})}


def find_names(execute: Execute, aliases: Collection[str]) -> dict[str, str]:
    """Return what pseudonyms stand for, as far as it is known."""
    rows = execute("SELECT alias, name FROM audit_names", {})
    return {str(row["alias"]): str(row["name"]) for row in rows if row["alias"] in aliases}


def forget_person(execute: Execute, channel: str, person: str, chats: Sequence[Thread] = (), *, by: str = "") -> None:
    """Delete who a pseudonym is, and which `chats` (private ones, whose address names the person) others are.

    The rows and the chain stay, and a further row says which pseudonyms have no name any more. A person who returns
    gets another pseudonym.
    """
    execute(LOCK_AUDIT, {})  # who has a row of `audit_names` has this, too: none waits for the other
    aliases: set[str] = set()
    for chat in chats:
        address = str(chat.without_topic)  # and all its topics
        sql = "DELETE FROM audit_names WHERE name>=:first AND name<=:first || '~' RETURNING alias"
        aliases |= {str(row["alias"]) for row in execute(sql, {"first": address})}
    what: dict[str, int | str] = {} if by else command_line()
    if aliases:
        what["chats"] = " ".join(sorted(aliases))
    subject = person_name(channel, person)
    record(execute, AuditEvent(AuditKind.PERSON_FORGOTTEN, who=by, channel=channel, subject=subject, what=what))
    execute("DELETE FROM audit_names WHERE name=:name", {"name": subject})
