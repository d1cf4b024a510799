"""outcomes: how models, tools and skills did on each day; runs: what was used, for the thumbs that come later"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"

KEY = ("day", "used", "name", "role")


def upgrade() -> None:
    def key_columns() -> list[sa.Column[object]]:
        return [sa.Column(name, sa.Integer() if name == "day" else sa.Text(), nullable=False) for name in KEY]

    counts = ("requests", "calls", "failed", "cost", "unpriced", "up", "down")
    of_counts = [sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in counts]
    others = [sa.Column(name, sa.Float(), nullable=False, server_default="0") for name in ("seconds", "squares")]
    op.create_table(
        "outcomes",
        *key_columns(),
        *of_counts,
        *others,
        sa.PrimaryKeyConstraint(*KEY),
    )
    op.create_table(
        "outcome_errors",
        *key_columns(),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, "error"),
    )
    op.add_column("runs", sa.Column("parts", sa.Text(), nullable=False, server_default=""))
