"""conversations.host, outbox.host: which data_dir has the files, where several processes have one each"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0117"
down_revision = "0120"


def upgrade() -> None:
    for table in ("conversations", "outbox"):
        op.add_column(table, sa.Column("host", sa.Text(), nullable=False, server_default=""))
