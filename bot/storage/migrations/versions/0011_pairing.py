"""what a person who waits for access wrote, and who is an operator by pairing"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("people", sa.Column("operator", sa.Integer(), server_default="0", nullable=False))
    op.add_column("people", sa.Column("message", sa.LargeBinary(), server_default="", nullable=False))
    op.create_index("people_operators", "people", ["channel"], sqlite_where=sa.text("operator=1"))
    op.create_index("people_waiting", "people", ["until"], sqlite_where=sa.text("code<>''"))
