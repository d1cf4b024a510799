"""waiting_numbers: the numbers by which people answer what waits for them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0063"
down_revision = "0062"


def upgrade() -> None:
    """Nothing had a number before."""
    op.create_table(
        "waiting_numbers",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("listed", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("subject"),
        sqlite_autoincrement=True,
    )
    op.create_index("waiting_numbers_listed", "waiting_numbers", ["listed"])
