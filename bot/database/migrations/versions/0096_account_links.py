"""account_links: which accounts are one person's; jobs that tell when what is handed over ends"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0096"
down_revision = "0091"


def upgrade() -> None:
    """Nothing was linked before. What is handed over now gets its job."""
    op.create_table(
        "account_links",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("channel", "person", "name")),
        sa.Column("guest", sa.Integer(), nullable=False),
        sa.Column("linked", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "person"),
    )
    op.create_index("account_links_linked", "account_links", ["linked"])
    op.create_table(
        "link_codes",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("channel", "person", "name")),
        sa.Column("guest", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("to_channel", "to_person", "to_name")),
        sa.Column("to_guest", sa.Integer(), nullable=False),
        sa.Column("agreed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("link_codes_until", "link_codes", ["until"])
    op.execute(
        """INSERT INTO jobs("key", kind, due, payload, created)
        SELECT 'hand over:' || id, 'hand over', until, CAST('{"id":' || id || '}' AS BLOB), since
        FROM hand_overs WHERE ended IS NULL"""
    )
