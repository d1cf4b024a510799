"""`python -m tests.support.schema_file`: write `bot/database/schema.sql` from the migrations (`make schema`)."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from pathlib import Path

from bot.database import migrate

BASE = Path(__file__).with_name("schema-0128.sql")
STATEMENTS = """SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name<>'sqlite_sequence'
    AND name NOT IN (SELECT name FROM pragma_table_list WHERE type='shadow')  -- a full-text index makes them itself
    ORDER BY type DESC, name"""
STAMP = "INSERT INTO alembic_version VALUES ('{}');\n"


def render_schema(current: str) -> str:
    """Return the file as the migrations build it. The order of tables and the comments above them are `current`'s."""
    head, _, rest = current.partition("BEGIN;")
    comments = {
        table: text for text, table in re.findall(r"^((?:--.*\n)*)CREATE (?:VIRTUAL )?TABLE (\w+)", rest, re.MULTILINE)
    }
    tables = {table: comments[table] for table in comments if table != "alembic_version"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "migrated.db")
        connection = sqlite3.connect(path)
        connection.executescript(BASE.read_text("utf-8"))
        migrate.upgrade_schema(path)
        rows = connection.execute(STATEMENTS).fetchall()
        connection.close()
    for table, sql in sorted(rows, key=lambda row: row[0] == "alembic_version"):
        text = re.sub(r", (?=\w+ [A-Z])", ",\n    ", sql.replace("\t", "    ").replace(", \n", ",\n"))
        tables[table] = f"{tables.get(table, '')}{text};\n"
    tables["alembic_version"] += STAMP.format(migrate.head_revision())
    return f"{head}BEGIN;\n\n" + "\n".join(text for text in tables.values() if "CREATE" in text) + "COMMIT;\n"


if __name__ == "__main__":
    migrate.SCHEMA_FILE.write_text(render_schema(migrate.SCHEMA_FILE.read_text()))
