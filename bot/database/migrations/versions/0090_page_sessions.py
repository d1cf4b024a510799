"""page_sessions: who uses the page in a browser, and an index for the latest entries of a transcript"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0090"
down_revision = "0089"


def upgrade() -> None:
    op.create_table(
        "page_sessions",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("page_sessions_of_person", "page_sessions", ["channel", "person"])
    op.create_index("page_sessions_until", "page_sessions", ["until"])
    op.create_index("transcript_conversation", "transcript", ["conversation", "id"])
    op.create_index("inbox_conversation", "inbox", ["conversation", "id"])
