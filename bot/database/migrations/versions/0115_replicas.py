"""replicas: the processes that work on this database, and which of them holds a row of the outbox, a task, a call"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0115"
down_revision = "0114"


def upgrade() -> None:
    op.create_table(
        "replicas",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("version", "digest")),
        sa.PrimaryKeyConstraint("id"),
    )
    for table in ("outbox", "tasks", "usage"):
        op.add_column(table, sa.Column("owner", sa.Text(), nullable=True))
