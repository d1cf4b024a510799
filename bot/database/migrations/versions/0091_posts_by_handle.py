"""posts: find a message by what follows the slash in its id, which is all that quotes on DingTalk name"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0091"
down_revision = "0090"
HANDLE = "substr(message_id, instr(message_id, '/'))"


def upgrade() -> None:
    """Ids without a slash are found as they are."""
    has_slash = sa.text("instr(message_id, '/')>0")
    op.create_index("posts_handle", "posts", [sa.text(HANDLE)], sqlite_where=has_slash)
