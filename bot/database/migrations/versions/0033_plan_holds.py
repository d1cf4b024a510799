"""plan_holds: what plans that people agreed to hold of the budgets"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    counts = [
        sa.Column(name, sa.Integer(), nullable=False, server_default="0")
        for name in ("money", "tokens", "taken_money", "taken_tokens")
    ]
    op.create_table(
        "plan_holds",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        *counts,
        sa.PrimaryKeyConstraint("conversation", "scope", "period"),
    )
