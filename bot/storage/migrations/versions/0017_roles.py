"""roles that people gave, for whom a run works, and who may decide an approval"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "person_roles",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("giver", sa.Text(), nullable=False),
        sa.Column("giver_name", sa.Text(), nullable=False),
        sa.Column("given", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "subject"),
    )
    op.add_column("runs", sa.Column("people", sa.Text(), server_default="", nullable=False))
    op.add_column("questions", sa.Column("requester", sa.Text(), server_default="", nullable=False))
    op.add_column("questions", sa.Column("approvers", sa.Text(), server_default="", nullable=False))
    op.add_column("questions", sa.Column("asked_in", sa.Text(), server_default="", nullable=False))
    op.add_column("permission_grants", sa.Column("place", sa.Text(), server_default="", nullable=False))
