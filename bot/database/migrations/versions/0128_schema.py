"""The schema of 0.1. New databases get it from `schema.sql`, and `early_data.py` copies older data into it."""

from __future__ import annotations

revision = "0128"
down_revision = None


def upgrade() -> None:
    """Nothing comes before."""
