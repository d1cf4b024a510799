"""memory: the embeddings of facts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "memory_vectors",
        sa.Column("memory", sa.Integer(), primary_key=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("bits", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
    )
