"""budget_holds: a row for each budget that a model call under way holds, instead of a sum in the counter"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0116"
down_revision = "0102"


def upgrade() -> None:
    """Calls under way ended with the process before this one."""
    numbers = ("money", "tokens", "taken_money", "taken_tokens")
    op.create_table(
        "budget_holds",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("call", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False, server_default=""),
        *(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0") for name in numbers),
        sa.PrimaryKeyConstraint("scope", "period", "call"),
    )
    op.create_index("budget_holds_call", "budget_holds", ["call"])
    for name in ("held_money", "held_tokens"):
        op.drop_column("budgets", name)
