"""transcript.asks: the questions with buttons that a notice on the channel `web` shows, as JSON"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0083"
down_revision = "0063"


def upgrade() -> None:
    op.add_column("transcript", sa.Column("asks", sa.Text(), nullable=False, server_default=""))
    op.create_index("transcript_asks", "transcript", ["conversation"], sqlite_where=sa.text("asks<>''"))
