"""calls: what rules judged in tool calls, to try other rules on them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.create_table(
        "calls",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("thread", "person", "people", "tool", "argument", "kind", "subject", "real")
        ),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("fallback", "verdict")),
        sa.Column("at", sa.Float(), nullable=False),
        sa.UniqueConstraint("conversation", "call"),
    )
    op.create_index("calls_at", "calls", ["at"])
