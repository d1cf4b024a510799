"""whose usage it is and what it cost, the counters of budgets, and whose turn it is among conversations that wait"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    for name in ("person", "chat", "price"):
        op.add_column("usage", sa.Column(name, sa.Text(), server_default="", nullable=False))
    op.add_column("usage", sa.Column("cost", sa.Integer(), nullable=True))
    op.add_column("usage", sa.Column("open", sa.Integer(), server_default="0", nullable=False))
    op.create_index("usage_person", "usage", ["person", "at"])
    op.create_index("usage_chat", "usage", ["chat", "at"])
    op.create_index("usage_open", "usage", ["id"], sqlite_where=sa.text("open=1"))
    op.create_table(
        "budgets",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("money", sa.Integer(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=True),
        sa.Column("held_money", sa.Integer(), server_default="0", nullable=False),
        sa.Column("held_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("warned", sa.Integer(), server_default="0", nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "period"),
    )
    op.create_index("budgets_until", "budgets", ["until"])
    op.add_column("conversations", sa.Column("person", sa.Text(), server_default="", nullable=False))
    op.execute(
        "UPDATE conversations SET person=coalesce((SELECT author FROM inbox WHERE conversation=conversations.key"
        " AND state=0 AND kind IN ('chat', 'click') ORDER BY id LIMIT 1), '') WHERE pending>0"
    )
    op.execute("CREATE INDEX conversations_waiting ON conversations (person, ready) WHERE pending>0 AND owner IS NULL")
    op.execute("CREATE INDEX conversations_working ON conversations (person) WHERE owner IS NOT NULL")
