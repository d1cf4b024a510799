"""hand_overs: who may answer in place of whom, and until when"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0089"
down_revision = "0087"


def upgrade() -> None:
    """Nothing was handed over before."""
    op.create_table(
        "hand_overs",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("channel", "giver", "giver_name")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("deputy", "deputy_name", "subject")),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("hand_overs_deputy", "hand_overs", ["channel", "deputy"])
    op.create_index("hand_overs_giver", "hand_overs", ["channel", "giver"])
    op.create_index("hand_overs_until", "hand_overs", ["until"])
