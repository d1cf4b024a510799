"""kept talk says whether a person of the team wrote it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0133"
down_revision = "0132"
ADDITIVE = True


def upgrade() -> None:
    """Add the column; what was kept before counts as a stranger's."""
    op.add_column("overheard", sa.Column("member", sa.Integer, nullable=False, server_default="0"))
