"""tasks: the run that started a task, for the people whose rights bound it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("begun_in", sa.Integer()))
