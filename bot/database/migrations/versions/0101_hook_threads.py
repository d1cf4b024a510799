"""hook_groups: the thread below a post of the group's own, in which it continues"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0111"


def upgrade() -> None:
    """Groups from before continue in their conversations."""
    for name, kind, default in (
        ("root", sa.Text(), ""),
        ("place", sa.Text(), ""),
        ("shown", sa.Integer(), sa.text("0")),
    ):
        op.add_column("hook_groups", sa.Column(name, kind, server_default=default, nullable=False))
