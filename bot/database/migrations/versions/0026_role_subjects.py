"""roles: subjects say whether they are a person or a chat"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Before, `WORKSPACE/PERSON` was a person, and another id a chat. Ids of chats on DingTalk begin with `cid`."""
    op.execute(
        "UPDATE person_roles SET subject=CASE WHEN subject LIKE '%/%' AND NOT (channel='dingtalk' AND subject LIKE"
        " 'cid%') THEN 'person:' || subject ELSE 'chat:' || subject END"
    )
