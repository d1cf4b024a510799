"""gaps in what was heard, posts of unknown outcome counted, an unread column gone"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "gaps",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("gaps_place", "gaps", ["channel", "workspace"])
    op.add_column("posts", sa.Column("posts", sa.Integer(), server_default="1", nullable=False))
    op.drop_column("addresses", "moved")
