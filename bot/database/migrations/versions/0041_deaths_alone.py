"""runs: how often the process died while nothing but this run was in progress"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0039"


def upgrade() -> None:
    op.add_column("runs", sa.Column("deaths_alone", sa.Integer(), server_default="0", nullable=False))
