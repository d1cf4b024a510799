"""posts_question: the messages that show a question, to be found when it is settled"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0061"
down_revision = "0060"


def upgrade() -> None:
    """Index only what shows a question, which is little."""
    shown = sa.text("question<>''")
    op.create_index("posts_question", "posts", ["question"], sqlite_where=shown, postgresql_where=shown)
