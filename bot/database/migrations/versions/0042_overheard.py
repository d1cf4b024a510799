"""overheard: the talk of groups whose platform has no history; listening: the chats that were told so"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    """Nothing of before was kept."""
    op.create_table(
        "overheard",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("overheard_of_thread", "overheard", ["thread", "id"])
    op.create_index("overheard_at", "overheard", ["at"])
    op.create_index("overheard_person", "overheard", ["person"])
    op.create_table(
        "listening",
        sa.Column("chat", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("chat"),
    )
