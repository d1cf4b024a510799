"""follow_ups: what the agent began without a person"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "follow_ups",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
    )
    op.create_index("follow_ups_root", "follow_ups", ["root"])
    op.create_index("follow_ups_person", "follow_ups", ["person", "at"])
