"""open questions in a table of their own; which message shows which question"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    questions = op.create_table(
        "questions",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), server_default="[]", nullable=False),
        sa.Column("free_text", sa.Integer(), server_default="1", nullable=False),
        sa.Column("call", sa.Text(), server_default="", nullable=False),
        sa.Column("call_hash", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("asked", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=True),
        sa.Column("answer", sa.Text(), server_default="", nullable=False),
        sa.Column("answered_by", sa.Text(), server_default="", nullable=False),
        sa.Column("answer_key", sa.Text(), server_default="", nullable=False),
        sa.Column("answered_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("conversation", "id"),
    )
    op.create_index("questions_asked", "questions", ["asked"])
    op.create_index("questions_until", "questions", ["until"], sqlite_where=sa.text("state='open'"))
    op.add_column("posts", sa.Column("question", sa.Text(), server_default="", nullable=False))
    if rows := _open_questions():
        op.bulk_insert(questions, rows)
    op.drop_column("conversations", "asks")


def _open_questions() -> list[dict[str, object]]:
    """Return the rows of the questions that conversations wait for. Damaged ones are lost, as they were before."""
    sql = (
        "SELECT key, asks, used, (SELECT max(id) FROM runs WHERE conversation=key) AS run FROM conversations"
        " WHERE state='waiting'"
    )
    rows = []
    for found in op.get_bind().execute(sa.text(sql)).mappings():
        try:
            asks = [{**ask, "id": str(ask["id"]), "text": str(ask["question"])} for ask in json.loads(found["asks"])]
        except (ValueError, TypeError, LookupError):
            continue
        for number, ask in enumerate(asks, 1):
            rows.append(
                {
                    "conversation": found["key"],
                    "id": ask["id"],
                    "run": found["run"] or 0,
                    "number": number if len(asks) > 1 else 0,
                    "kind": "ask",
                    "text": ask["text"],
                    "options": json.dumps(ask.get("options", [])),
                    "free_text": int(ask.get("free_text", True)),
                    "asked": found["used"],
                }
            )
    return rows
