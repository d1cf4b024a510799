"""run_steps: the steps of turns in progress, which the next process shows when this one dies"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0113"
down_revision = "0108"


def upgrade() -> None:
    texts = [sa.Column(name, sa.Text(), nullable=False) for name in ("parent", "text", "step_title", "state")]
    op.create_table(
        "run_steps",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        *texts,
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("conversation", "item"),
    )
