"""the few rows that retention and the start look for are found by an index"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0132"
down_revision = "0129"
ADDITIVE = True


def upgrade() -> None:
    """Index topics by time, and people with a device."""
    _index("heard_topics", "heard", "time", "topic<>''")
    _index("people_with_push", "people", "channel", "push_url<>''")


def _index(name: str, table: str, column: str, where: str) -> None:
    rows = sa.text(where)
    op.create_index(name, table, [column], sqlite_where=rows, postgresql_where=rows)
