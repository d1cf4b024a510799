"""reply_handles: what platforms give with an event to answer it by, until its end"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0114"
down_revision = "0113"


def upgrade() -> None:
    op.create_table(
        "reply_handles",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("chat", "message", "token", "author")),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("chat", "message"),
    )
    op.create_index("reply_handles_until", "reply_handles", ["until"])
