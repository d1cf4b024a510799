"""skill_versions: the files of skills that were accepted or wait for a decision, for all processes on one database"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0124"
down_revision = "0123"
ADDITIVE = True


def upgrade() -> None:
    op.create_table(
        "skill_versions",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("part", sa.BigInteger(), nullable=False),
        sa.Column("parts", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", "hash", "part"),
    )
