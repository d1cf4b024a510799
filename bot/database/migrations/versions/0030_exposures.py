"""exposures: whether a conversation has private data and has read strangers' text, and which addresses it knows"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """What older conversations have met is not known: they count as exposed."""
    op.create_table(
        "exposures",
        sa.Column("conversation", sa.Text(), primary_key=True),
        sa.Column("private", sa.Integer(), server_default="0", nullable=False),
        sa.Column("untrusted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("files", sa.Integer(), server_default="0", nullable=False),
        sa.Column("known", sa.LargeBinary(), server_default="", nullable=False),
    )
    op.execute("INSERT INTO exposures(conversation, private, untrusted, files) SELECT key, 1, 1, 1 FROM conversations")
