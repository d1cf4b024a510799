"""the reasoning effort that people choose for a conversation"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("conversations", sa.Column("effort", sa.Text(), server_default="", nullable=False))
