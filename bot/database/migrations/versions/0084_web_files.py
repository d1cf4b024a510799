"""web_files: files that came and went over HTTP; their bytes are in data_dir/web"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0084"
down_revision = "0083"


def upgrade() -> None:
    op.create_table(
        "web_files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("caption", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("web_files_at", "web_files", ["at"])
    op.create_index("web_files_person", "web_files", ["person"])
