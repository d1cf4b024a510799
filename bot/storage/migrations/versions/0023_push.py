"""where, when and how people are notified, and the notifications held back"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    for name in ("notify_where", "quiet", "digest", "push_url"):
        op.add_column("people", sa.Column(name, sa.Text(), server_default="", nullable=False))
    op.create_table(
        "held_pings",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_index("held_pings_person", "held_pings", ["channel", "person"])
    op.create_index("held_pings_created", "held_pings", ["created"])
