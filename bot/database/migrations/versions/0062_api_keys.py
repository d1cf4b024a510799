"""api_keys: the keys with which programs act for people over HTTP"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0062"
down_revision = "0061"


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=True),
        sa.Column("used", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("hash"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("api_keys_of_person", "api_keys", ["channel", "person"])
