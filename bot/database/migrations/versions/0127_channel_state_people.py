"""channel_state.author, until: whose an item is, and when nobody needs it any more"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0127"
down_revision = "0125"
ADDITIVE = True


def upgrade() -> None:
    op.add_column("channel_state", sa.Column("author", sa.Text(), nullable=False, server_default=""))
    op.add_column("channel_state", sa.Column("until", sa.Float(), nullable=True))
