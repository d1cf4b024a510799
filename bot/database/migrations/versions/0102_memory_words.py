"""memory_words: PostgreSQL's index of memories has no list of words to come, which each search would read"""

from __future__ import annotations

from alembic import op

revision = "0102"
down_revision = "0115"


def upgrade() -> None:
    """SQLite stays as it is."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER INDEX memory_words SET (fastupdate=off)")
    op.execute("SELECT gin_clean_pending_list('memory_words')")
    op.execute("DROP FUNCTION fawn_score(tsvector, fawn_weight[])")  # searches bring the weights of their words
    op.execute("DROP FUNCTION fawn_weights(text)")
    op.execute("DROP TYPE fawn_weight")
