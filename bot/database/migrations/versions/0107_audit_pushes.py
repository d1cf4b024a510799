"""audit_pushes: how far the audit was pushed to each receiver"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0107"
down_revision = "0096"


def upgrade() -> None:
    """Nothing was pushed before."""
    op.create_table(
        "audit_pushes",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("target"),
    )
