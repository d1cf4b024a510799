"""Name what SQLite spells differently from PostgreSQL. All other statements run on both."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing

ROW_ID = "rowid"  # PostgreSQL: ctid
PAYLOAD_BYTES = "CAST(payload AS BLOB)"  # the column's bytes also where SQLite holds damaged text; PostgreSQL: payload

# ------------------------------------------------------------ full text; PostgreSQL: ILIKE with an index of pg_trgm

TRIGRAM_CHARS = 3  # the index does not find shorter words
_SEARCH_TABLE = "CREATE VIRTUAL TABLE {}transcript_words USING fts5(text, {}tokenize='trigram')"
_CREATE_INDEX = f"""BEGIN IMMEDIATE;
DROP TABLE IF EXISTS transcript_words;
{_SEARCH_TABLE.format("", "content='transcript', content_rowid='id', ")};
INSERT INTO transcript_words(transcript_words) VALUES ('rebuild');
CREATE TRIGGER transcript_added AFTER INSERT ON transcript BEGIN
    INSERT INTO transcript_words(rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER transcript_deleted AFTER DELETE ON transcript BEGIN
    INSERT INTO transcript_words(transcript_words, rowid, text) VALUES ('delete', old.id, old.text);
END;
COMMIT"""
_DROP_TRIGGERS = "DROP TRIGGER IF EXISTS transcript_added; DROP TRIGGER IF EXISTS transcript_deleted"


def _has_trigrams() -> bool:
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(_SEARCH_TABLE.format("temp.", ""))
    except sqlite3.OperationalError:
        return False
    return True


HAS_TRIGRAMS = _has_trigrams()
"""Whether this SQLite library has full text search by trigrams, which finds parts of words in every script."""


def prepare_search(connection: sqlite3.Connection, *, indexed: bool = HAS_TRIGRAMS) -> None:
    """Build the index of the transcripts if it is missing. A library without such indexes stops maintaining it."""
    if not indexed:
        connection.executescript(_DROP_TRIGGERS)
    elif not connection.execute("SELECT 1 FROM sqlite_master WHERE name='transcript_added'").fetchall():
        connection.executescript(_CREATE_INDEX)


def match_words(words: Sequence[str], *, indexed: bool) -> tuple[str, str, str, dict[str, str]]:
    """Return the tables with the transcript as `t`, the condition that its text has all words, its order, its values.

    Words that the index cannot find are compared with each row.
    """
    long = [word for word in words if indexed and len(word) >= TRIGRAM_CHARS]
    short = {f"word{number}": word for number, word in enumerate(words) if word not in long}
    values = {name: "%" + re.sub(r"([\\%_])", r"\\\1", word) + "%" for name, word in short.items()}
    conditions = [rf"t.text LIKE :{name} ESCAPE '\'" for name in values]
    if not long:
        return "transcript t", " AND ".join(conditions), "t.id", values
    phrases = ('"{}"'.format(word.replace('"', '""')) for word in long)
    condition = " AND ".join(["transcript_words MATCH :phrases", *conditions])
    tables = "transcript_words CROSS JOIN transcript t ON t.id=transcript_words.rowid"
    return tables, condition, "transcript_words.rowid", {**values, "phrases": " ".join(phrases)}
