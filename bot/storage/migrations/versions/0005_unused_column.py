"""drop a column that nothing reads"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_column("conversations", "until")
