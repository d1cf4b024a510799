"""whom messages quote, the conversations of schedules that moved, and the age of follow-ups"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_table(
        "quoted",
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("person", "message"),
    )
    op.create_index("quoted_conversation", "quoted", ["conversation"])
    op.add_column("schedules", sa.Column("moves", sa.Integer(), server_default="0", nullable=False))
    op.create_index("follow_ups_at", "follow_ups", ["at"])
