"""traces: a random name of the database, for ids of traces that no other one has; when model calls began"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0087"
down_revision = "0085"


def upgrade() -> None:
    """The name is made when it is first read. Of older calls, only the ends are known."""
    op.create_table("identity", sa.Column("id", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("id"))
    op.add_column("usage", sa.Column("began", sa.Float(), nullable=False, server_default="0"))
    op.execute("UPDATE usage SET began=at-seconds")
