"""leases: which process listens to an account, or does what only one of several may do"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0120"
down_revision = "0116"


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
