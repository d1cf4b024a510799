"""memory: facts about people, their full-text index, and the runs whose messages were not read for facts yet"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "memory",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("audience", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("said", sa.Float(), nullable=False),
        sa.Column("used", sa.Float(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("links", sa.Text(), nullable=False),
        sa.Column("superseded_by", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("memory_audience", "memory", ["audience", "kind"], sqlite_where=sa.text("superseded_by IS NULL"))
    op.create_index("memory_owner", "memory", ["account", "owner"])
    op.create_index("memory_used", "memory", ["used"])
    op.create_index("memory_superseded", "memory", ["superseded_by"], sqlite_where=sa.text("superseded_by IS NOT NULL"))
    op.execute(
        "CREATE VIRTUAL TABLE memory_index USING fts5"
        " (text, before, after, audience, tokenize='porter unicode61 remove_diacritics 2')"
    )
    op.create_table(
        "memory_queue",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("account", "owner", "run"),
    )
    op.create_index("memory_queue_at", "memory_queue", ["at"])
    op.add_column("people", sa.Column("memory", sa.Integer(), server_default="1", nullable=False))
