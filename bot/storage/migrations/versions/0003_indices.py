"""each statement of a service at work finds its rows by an index, however many old rows there are"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.drop_index("outbox_open", "outbox")
    for index in (
        "addresses_conversation ON addresses (conversation)",
        'conversations_owned ON conversations ("key") WHERE owner IS NOT NULL',
        "conversations_used ON conversations (used)",
        "inbox_commands ON inbox (id) WHERE state=0 AND kind='command'",
        "inbox_dead ON inbox (id) WHERE state=3",
        "outbox_state ON outbox (state, created)",
        "posts_created ON posts (created)",
        "runs_finished ON runs (finished)",
        "runs_open ON runs (conversation, id) WHERE state IN ('queued', 'running')",
    ):
        op.execute(f"CREATE INDEX {index}")
