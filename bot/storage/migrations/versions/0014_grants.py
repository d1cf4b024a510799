"""what people allow for the future, and what an open approval offers"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "permission_grants",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("given", sa.Float(), nullable=False),
        sa.UniqueConstraint("conversation", "tool", "subject"),
    )
    op.add_column("questions", sa.Column("grant_tool", sa.Text(), server_default="", nullable=False))
    op.add_column("questions", sa.Column("grant_subject", sa.Text(), server_default="", nullable=False))
