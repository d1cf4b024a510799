"""replicas.data_lock: the lock on data_dir, which proves that the process that had it before is dead"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0126"
down_revision = "0124"
ADDITIVE = True


def upgrade() -> None:
    op.add_column("replicas", sa.Column("data_lock", sa.Text(), nullable=False, server_default=""))
