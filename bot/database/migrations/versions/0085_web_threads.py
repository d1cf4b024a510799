"""web_threads: what programs note at their threads over HTTP"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0085"
down_revision = "0084"


def upgrade() -> None:
    op.create_table(
        "web_threads",
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("thread"),
    )
    op.create_index("web_threads_at", "web_threads", ["at"])
    op.create_index("web_threads_person", "web_threads", ["person", "at"])
