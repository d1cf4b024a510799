"""first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:

    op.create_table(
        "addresses",
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), server_default="1", nullable=False),
        sa.Column("moved", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("thread"),
    )
    op.create_table(
        "conversations",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), server_default="idle", nullable=False),
        sa.Column("asks", sa.Text(), server_default="", nullable=False),
        sa.Column("pending", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ready", sa.Float(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("until", sa.Float(), server_default="0", nullable=False),
        sa.Column("fence", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("used", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    with op.batch_alter_table("conversations", schema=None) as batch_op:
        batch_op.create_index(
            "conversations_ready",
            ["ready"],
            unique=False,
            sqlite_where=sa.text("pending>0"),
            postgresql_where=sa.text("pending>0"),
        )
        batch_op.create_index("conversations_thread", ["thread"], unique=False)

    op.create_table(
        "inbox",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ready", sa.Float(), nullable=False),
        sa.Column("received", sa.Float(), nullable=False),
        sa.Column("bundle", sa.Text(), server_default="", nullable=False),
        sa.Column("run", sa.Integer(), nullable=True),
        sa.Column("steered", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("inbox", schema=None) as batch_op:
        batch_op.create_index("inbox_author", ["author", "received"], unique=False)
        batch_op.create_index(
            "inbox_open",
            ["conversation", "id"],
            unique=False,
            sqlite_where=sa.text("state=0"),
            postgresql_where=sa.text("state=0"),
        )
        batch_op.create_index("inbox_received", ["received"], unique=False)
        batch_op.create_index("inbox_run", ["run"], unique=False)

    op.create_table(
        "ledger",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("conversation", "call"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("run", sa.Integer(), nullable=True),
        sa.Column("reply_to", sa.Text(), server_default="", nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(
            "outbox_open",
            ["thread", "id"],
            unique=False,
            sqlite_where=sa.text("state<2"),
            postgresql_where=sa.text("state<2"),
        )

    op.create_table(
        "outputs",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("conversation", "path"),
    )
    op.create_table(
        "people",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("allowed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("code", sa.Text(), server_default="", nullable=False),
        sa.Column("until", sa.Float(), server_default="0", nullable=False),
        sa.Column("thread", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("channel", "person"),
    )
    with op.batch_alter_table("people", schema=None) as batch_op:
        batch_op.create_index("people_code", ["code"], unique=False)

    op.create_table(
        "posts",
        sa.Column("reply", sa.Text(), nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("message_id", sa.Text(), server_default="", nullable=False),
        sa.Column("sent", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("reply", "part"),
    )
    with op.batch_alter_table("posts", schema=None) as batch_op:
        batch_op.create_index("posts_message", ["thread", "message_id"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("reply_to", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("stop_by", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("input", sa.Integer(), server_default="0", nullable=False),
        sa.Column("output", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cached", sa.Integer(), server_default="0", nullable=False),
        sa.Column("calls", sa.Integer(), server_default="0", nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index("runs_conversation", ["conversation", "id"], unique=False)
