"""languages: chosen by people and chats, of the requesters of runs, and of each row of the outbox"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "languages",
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("reader"),
    )
    op.add_column("runs", sa.Column("language", sa.Text(), server_default="", nullable=False))
    op.add_column("outbox", sa.Column("language", sa.Text(), server_default="", nullable=False))
