"""Name what SQLite and PostgreSQL spell differently. All other statements run on both.

A statement is written once, as SQLite reads it. PostgreSQL's connection puts its own spelling in place of these names
(`POSTGRESQL`), once for each statement; SQLite takes a comment for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum, unique

ROW_ID = "_rowid_"  # where the row is stored; `rowid` is the key of the full-text index
BODY_BYTES, HASH_BYTES = "CAST(body AS BLOB)", "CAST(hash AS BLOB)"  # of a row of the audit, whatever was written there
PAYLOAD_BYTES = "CAST(payload AS BLOB)"  # the column's bytes also where SQLite holds damaged text
LIKE = "LIKE /* any case */"  # SQLite ignores the case of ASCII letters only, PostgreSQL every case
ROLE_PERSON = "substr(subject, instr(subject, '/')+1)"  # of a role of a person
QUARTER = "CAST(at/900 AS INTEGER)"  # the quarter of an hour of a row; PostgreSQL would round it
FULL_TEXT_MATCH = "memory_index MATCH :query"  # also with a number behind it
# Its columns text, before, after, audience. PostgreSQL has no bm25: there, each of `:words` weighs its
# one of `:rarities`, and one occurrence in a text has the rank 0.6079.
FULL_TEXT_SCORE = "-bm25(memory_index, 1.0, 0.5, 0.2, 0.0)"
MERGE_PAGES = "(memory_index, rank) VALUES ('merge', :pages)"  # what makes SQLite's index smaller, inserted into it
FROM_THE_LEFT = "CROSS JOIN"  # SQLite reads the left table first; PostgreSQL decides by itself
FOR_UPDATE = " /* locked */"  # the rows that a unit reads and then changes, until its transaction ends
FOR_SHARE = " /* held */"  # the rows that must stay as they are until the transaction ends
SKIP_LOCKED = " /* unless locked */"  # locked, without rows that another process claims at this moment
NOW = "((julianday('now')-2440587.5)*86400.0)"  # unix time by the database's clock, whatever the hosts' clocks say
EXTRA = "/* PostgreSQL */ "  # begins a statement that SQLite leaves out: there, each transaction is alone


@unique
class AdvisoryLock(IntEnum):
    """The numbers of PostgreSQL's advisory locks, which all parts of Fawn share."""

    AUDIT = 1178686318  # who writes a row of it: each continues the one before it
    OWNER = 1178686319  # the session that works on this database
    FENCE = 1178686320  # shared by each transaction of a process whose transactions are not in that session
    RELEASE = 1178686321  # one at a time releases what the dead held
    OUTBOX = 1178686322  # one at a time claims rows: none overtakes another
    COPY = 1178686323  # shared by copies, which read one moment; who overwrites what was deleted has it alone
    QUEUE = 1178686324  # one at a time looks who has to wait
    TOOLS = 1178686327  # one at a time counts a call of a limited tool
    SCHEMA = 1178686325  # a session that makes or upgrades the tables, where others may do the same
    PROCESS = 1178686326  # with a second number, shared by the sessions that work for one process


def lock_until_commit(lock: AdvisoryLock) -> str:
    """Return a statement that has other processes wait until the transaction ends."""
    return f"{EXTRA}SELECT pg_advisory_xact_lock({lock})"


LOCK_AUDIT = lock_until_commit(AdvisoryLock.AUDIT)
# Asks a connection to append the `event` among its values to the audit at the end of the transaction. One that does not
# (SQLite, commands) returns no row.
APPEND_LATER = f"{EXTRA}SELECT 1 WHERE false"

POSTGRESQL: Mapping[str, str] = {
    ROW_ID: "ctid",
    BODY_BYTES: "body",
    HASH_BYTES: "hash",
    PAYLOAD_BYTES: "payload",
    LIKE: "ILIKE",
    "instr(": "strpos(",
    QUARTER: "floor(at/900)",
    FULL_TEXT_SCORE: "(SELECT sum(rarity * ts_rank('{0, 0.2, 0.5, 1}', words, word)) / 0.6079 FROM unnest((SELECT"
    " array_agg(fawn_query(each)) FROM unnest(CAST(:words AS text[])) AS each), :rarities) AS known(word, rarity))",
    f"INSERT INTO memory_index{MERGE_PAGES}": "SELECT :pages",
    "total_changes()": "0",
    NOW: "date_part('epoch', clock_timestamp())",
    EXTRA: "",
    FROM_THE_LEFT: "JOIN",
    FOR_UPDATE: " FOR UPDATE",
    FOR_SHARE: " FOR SHARE",
    SKIP_LOCKED: " FOR UPDATE SKIP LOCKED",
    "IS NOT OLD.": "IS DISTINCT FROM OLD.",
    "IS NOT NEW.": "IS DISTINCT FROM NEW.",
}
# Unknown to the planner, so that it asks the index also for what is in most memories: comparing them all takes longer.
_MATCH = re.compile(r"memory_index MATCH (:query\d*)")
_ANY = re.compile("|".join(map(re.escape, POSTGRESQL)))  # longer ones stand before their beginnings


def spell_for_postgresql(sql: str) -> str:
    """Return a statement as PostgreSQL reads it."""
    sql = _MATCH.sub(r"words @@ (SELECT fawn_query(\1))", sql)
    return _ANY.sub(lambda found: POSTGRESQL[found[0]], sql)
