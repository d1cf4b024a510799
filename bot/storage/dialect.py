"""Name what SQLite spells differently from PostgreSQL. All other statements run on both."""

from __future__ import annotations

ROW_ID = "rowid"  # PostgreSQL: ctid
PAYLOAD_BYTES = "CAST(payload AS BLOB)"  # the column's bytes also where SQLite holds damaged text; PostgreSQL: payload
LIKE = "LIKE"  # ignores the case of ASCII letters only; PostgreSQL: ILIKE, which ignores every case
