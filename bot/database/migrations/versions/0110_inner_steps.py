"""transcript.parent: the step that began a step of a sub-agent"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0110"
down_revision = "0107"


def upgrade() -> None:
    """Steps of sub-agents were not stored before."""
    op.add_column("transcript", sa.Column("parent", sa.Text(), nullable=False, server_default=""))
