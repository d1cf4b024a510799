"""departures: since when a platform says that an account is deactivated"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.create_table(
        "departures",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "person"),
    )
    active = sa.text("state='active'")
    op.create_index("schedules_owners", "schedules", ["channel", "owner"], sqlite_where=active)
    op.create_index(
        "permission_grants_people", "permission_grants", ["channel", "person"], sqlite_where=sa.text("person<>''")
    )
