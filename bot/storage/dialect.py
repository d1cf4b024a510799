"""Name what SQLite spells differently from PostgreSQL. All other statements run on both."""

from __future__ import annotations

ROW_ID = "rowid"  # PostgreSQL: ctid
BODY_BYTES, HASH_BYTES = "CAST(body AS BLOB)", "CAST(hash AS BLOB)"  # of a row of the audit, whatever was written there
PAYLOAD_BYTES = "CAST(payload AS BLOB)"  # the column's bytes also where SQLite holds damaged text; PostgreSQL: payload
LIKE = "LIKE"  # ignores the case of ASCII letters only; PostgreSQL: ILIKE, which ignores every case
ROLE_PERSON = "substr(subject, instr(subject, '/')+1)"  # of a role of a person; PostgreSQL: strpos
FULL_TEXT_MATCH = "memory_index MATCH :query"  # PostgreSQL: a tsvector column over the same prepared text
FULL_TEXT_SCORE = "-bm25(memory_index, 1.0, 0.5, 0.2, 0.0)"  # its columns text, before, after, audience
