"""channel_state: what channels keep over restarts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0108"
down_revision = "0101"


def upgrade() -> None:
    """No channel kept anything before."""
    op.create_table(
        "channel_state",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "item"),
    )
