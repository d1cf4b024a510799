"""exposures: the digests of words that searches may carry, and of those that they may not"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    for name in ("said", "listed", "private_words"):
        op.add_column("exposures", sa.Column(name, sa.LargeBinary(), nullable=False, server_default=""))
