"""replicas.state: whether a process begins, serves or ends, so that others take what waits for it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0121"
down_revision = "0117"
ADDITIVE = True


def upgrade() -> None:
    op.add_column("replicas", sa.Column("state", sa.Text(), nullable=False, server_default="serving"))
