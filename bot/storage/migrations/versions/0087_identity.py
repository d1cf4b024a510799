"""identity: a random name of the database, by which the ids of its traces differ from those of others"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0087"
down_revision = "0063"


def upgrade() -> None:
    """The name is made when it is first read."""
    op.create_table("identity", sa.Column("name", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("name"))
