"""tasks: the tool that started a command; inbox: presses are answered like commands"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("tool", sa.Text(), nullable=False, server_default=""))
    # The title of a skill's program is the name of the skill, that of another command begins like the command.
    op.execute("UPDATE tasks SET tool='bash' WHERE kind='command'")
    op.execute(
        "UPDATE tasks SET tool='run_skill' WHERE kind='command' AND title NOT GLOB '*[^a-z0-9-]*'"
        " AND substr(what, 1, length(title))<>title"
    )
    op.execute("DROP INDEX inbox_commands")
    op.execute("CREATE INDEX inbox_commands ON inbox (id) WHERE state=0 AND kind IN ('command', 'press')")
