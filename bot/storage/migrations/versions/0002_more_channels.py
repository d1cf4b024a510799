"""more channels: what was heard, whom a reply is for, when a person wants to be told"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "heard",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("chat", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("time", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "workspace", "chat", "topic"),
    )
    op.add_column("outbox", sa.Column("person", sa.Text(), server_default="", nullable=False))
    op.add_column("people", sa.Column("notify", sa.Float(), nullable=True))
    op.drop_index("posts_message", "posts")
    op.create_index("posts_message", "posts", ["message_id", "thread"])
