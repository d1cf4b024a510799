"""schedules: what runs at set times, each fire, and the time zones of people"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.Column("guest", sa.Integer(), nullable=False),
        sa.Column("private", sa.Integer(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("missed", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=True),
        sa.Column("changes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("seen", sa.Text(), server_default="", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("schedules_due", "schedules", ["next_at"], sqlite_where=sa.text("state='active'"))
    op.create_index("schedules_owner", "schedules", ["channel", "owner"])
    op.create_index("schedules_thread", "schedules", ["thread"])
    op.create_index("schedules_created", "schedules", ["created"])
    op.create_table(
        "schedule_fires",
        sa.Column("schedule", sa.Integer(), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("message", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("schedule", "due"),
    )
    op.create_index("schedule_fires_at", "schedule_fires", ["at"])
    op.add_column("people", sa.Column("zone", sa.Text(), server_default="", nullable=False))
