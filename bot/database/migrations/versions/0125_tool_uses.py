"""tool_uses: the calls of limited tools, where several processes count them together"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0125"
down_revision = "0126"
ADDITIVE = True


def upgrade() -> None:
    op.create_table(
        "tool_uses",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("tool_uses_by_time", "tool_uses", ["at"])
