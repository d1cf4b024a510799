"""the audit: a hash-chained log, where its kept part begins, and who its pseudonyms are"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "audit_anchors",
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "audit_names",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
