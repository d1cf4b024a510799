"""people's own models, what steps returned, and which runs began with a plan"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0129"
down_revision = "0128"
ADDITIVE = True
ADDED = {
    "agent_defaults": ("model", "effort"),  # chosen with /model NAME me
    "transcript": ("output",),
    "run_steps": ("output",),
    "runs": ("mode",),  # for the expected cost of the next plan
}


def upgrade() -> None:
    """Of earlier steps and runs it is unknown."""
    for table, names in ADDED.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.Text(), nullable=False, server_default=""))
