"""forgetting_indexes: find what is stored of a person without reading what others wrote"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_index("inbox_author_conversation", "inbox", ["author", "conversation"])
    op.create_index("transcript_author", "transcript", ["conversation", "author", "run"])
    op.create_index("runs_requester", "runs", ["conversation", "requester"])
    op.create_index("feedback_person", "feedback", ["person"])
