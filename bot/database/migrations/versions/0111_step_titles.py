"""transcript.step_title: what a step does, in words, beside its raw call"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0111"
down_revision = "0110"


def upgrade() -> None:
    """Of earlier steps only one of both was stored."""
    op.add_column("transcript", sa.Column("step_title", sa.Text(), nullable=False, server_default=""))
