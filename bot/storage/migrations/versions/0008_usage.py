"""a row for each model call, in place of sums in the run"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("conversation", "agent", "model", "kind")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("input", "output", "cached", "reasoning")),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("seconds", "at")),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("usage_run", "usage", ["run"])
    op.create_index("usage_at", "usage", ["at"])
    op.execute(
        "INSERT INTO usage(run, conversation, agent, model, kind, input, output, cached, reasoning, seconds, at)"
        " SELECT id, conversation, 'lead', model, 'turn', input, output, cached, 0, 0, coalesce(finished, started)"
        " FROM runs WHERE calls>0"
    )
    for column in ("model", "input", "output", "cached", "calls"):
        op.drop_column("runs", column)
