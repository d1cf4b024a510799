"""checkpoints: the states of conversations, which had a file of their own (`adopt_checkpoints` takes it over)"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    def text(*names: str) -> list[sa.Column[str]]:
        return [sa.Column(name, sa.Text(), nullable=False) for name in names]

    op.create_table(
        "checkpoints",
        *text("thread", "ns", "id", "kind"),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        *text("meta_kind"),
        sa.Column("meta", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("thread", "ns"),
    )
    op.create_table(
        "checkpoint_writes",
        *text("thread", "ns", "id", "task"),
        sa.Column("idx", sa.Integer(), nullable=False),
        *text("path", "channel", "kind"),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("thread", "ns", "id", "task", "idx"),
    )
