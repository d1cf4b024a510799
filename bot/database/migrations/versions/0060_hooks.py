"""hook_deliveries: what other systems posted; hook_groups: where it goes on; hook_refusals: what was not taken"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0060"
down_revision = "0042"


def upgrade() -> None:
    """Nothing was taken before."""
    op.create_table(
        "hook_deliveries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("hook", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("group_key", sa.Text(), nullable=False),
        sa.Column("event", sa.LargeBinary(), nullable=False),
        sa.Column("received", sa.Float(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("posted", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hook", "key"),
    )
    op.create_index("hook_deliveries_of_state", "hook_deliveries", ["hook", "state", "id"])
    op.create_index("hook_deliveries_digest", "hook_deliveries", ["hook", "digest", "received"])
    op.create_index("hook_deliveries_posted", "hook_deliveries", ["hook", "posted"])
    op.create_index("hook_deliveries_received", "hook_deliveries", ["received"])
    op.create_table(
        "hook_groups",
        sa.Column("hook", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("group_key", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("used", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("hook", "thread", "group_key"),
    )
    op.create_index("hook_groups_used", "hook_groups", ["used"])
    op.create_table(
        "hook_refusals",
        sa.Column("hook", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("hook", "reason"),
    )
    op.create_index("hook_refusals_at", "hook_refusals", ["at"])
