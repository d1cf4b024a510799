"""agents: chosen for conversations, people and chats"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "agent_defaults",
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("reader"),
    )
    op.add_column("conversations", sa.Column("agent", sa.Text(), server_default="", nullable=False))
