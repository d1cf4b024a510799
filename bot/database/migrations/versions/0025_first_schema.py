"""first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "addresses",
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("thread"),
    )
    op.create_index("addresses_conversation", "addresses", ["conversation"])
    op.create_table(
        "agent_defaults",
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("reader"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "audit_anchors",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "audit_names",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "budgets",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("money", sa.Integer(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=True),
        sa.Column("held_money", sa.Integer(), server_default="0", nullable=False),
        sa.Column("held_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("warned", sa.Integer(), server_default="0", nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "period"),
    )
    op.create_index("budgets_until", "budgets", ["until"])
    op.create_table(
        "conversations",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), server_default="idle", nullable=False),
        sa.Column("pending", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ready", sa.Float(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fence", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("used", sa.Float(), nullable=False),
        sa.Column("agent", sa.Text(), server_default="", nullable=False),
        sa.Column("person", sa.Text(), server_default="", nullable=False),
        sa.Column("effort", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("conversations_owned", "conversations", ["key"], sqlite_where=sa.text("owner IS NOT NULL"))
    op.create_index("conversations_ready", "conversations", ["ready"], sqlite_where=sa.text("pending>0"))
    op.create_index("conversations_thread", "conversations", ["thread"])
    op.create_index("conversations_used", "conversations", ["used"])
    op.create_index(
        "conversations_waiting",
        "conversations",
        ["person", "ready"],
        sqlite_where=sa.text("pending>0 AND owner IS NULL"),
    )
    op.create_index("conversations_working", "conversations", ["person"], sqlite_where=sa.text("owner IS NOT NULL"))
    op.create_table(
        "feedback",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("run", "person"),
    )
    op.create_index("feedback_at", "feedback", ["at", "value"])
    op.create_table(
        "gaps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("gaps_place", "gaps", ["channel", "workspace"])
    op.create_table(
        "heard",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("chat", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("time", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "workspace", "chat", "topic"),
    )
    op.create_table(
        "held_pings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_index("held_pings_created", "held_pings", ["created"])
    op.create_index("held_pings_person", "held_pings", ["channel", "person"])
    op.create_table(
        "inbox",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ready", sa.Float(), nullable=False),
        sa.Column("received", sa.Float(), nullable=False),
        sa.Column("bundle", sa.Text(), server_default="", nullable=False),
        sa.Column("run", sa.Integer(), nullable=True),
        sa.Column("steered", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_index("inbox_author", "inbox", ["author", "received"])
    op.create_index("inbox_commands", "inbox", ["id"], sqlite_where=sa.text("state=0 AND kind='command'"))
    op.create_index("inbox_dead", "inbox", ["id"], sqlite_where=sa.text("state=3"))
    op.create_index("inbox_open", "inbox", ["conversation", "id"], sqlite_where=sa.text("state=0"))
    op.create_index("inbox_received", "inbox", ["received"])
    op.create_index("inbox_run", "inbox", ["run"])
    op.create_table(
        "jobs",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("due", sa.Float(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("jobs_owner", "jobs", ["owner", "due"])
    op.create_table(
        "languages",
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("reader"),
    )
    op.create_table(
        "ledger",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("conversation", "call"),
    )
    op.create_table(
        "memory",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("audience", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("said", sa.Float(), nullable=False),
        sa.Column("used", sa.Float(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("links", sa.Text(), nullable=False),
        sa.Column("superseded_by", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("memory_audience", "memory", ["audience", "kind"], sqlite_where=sa.text("superseded_by IS NULL"))
    op.create_index("memory_owner", "memory", ["account", "owner"])
    op.create_index("memory_superseded", "memory", ["superseded_by"], sqlite_where=sa.text("superseded_by IS NOT NULL"))
    op.create_index("memory_used", "memory", ["used"])
    op.create_table(
        "memory_queue",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("account", "owner", "run"),
    )
    op.create_index("memory_queue_at", "memory_queue", ["at"])
    op.create_table(
        "memory_vectors",
        sa.Column("memory", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("bits", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("memory"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("run", sa.Integer(), nullable=True),
        sa.Column("reply_to", sa.Text(), server_default="", nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("person", sa.Text(), server_default="", nullable=False),
        sa.Column("language", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_state", "outbox", ["state", "created"])
    op.create_table(
        "outputs",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("conversation", "path"),
    )
    op.create_table(
        "people",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("allowed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("code", sa.Text(), server_default="", nullable=False),
        sa.Column("until", sa.Float(), server_default="0", nullable=False),
        sa.Column("thread", sa.Text(), server_default="", nullable=False),
        sa.Column("notify", sa.Float(), nullable=True),
        sa.Column("operator", sa.Integer(), server_default="0", nullable=False),
        sa.Column("message", sa.LargeBinary(), server_default="", nullable=False),
        sa.Column("memory", sa.Integer(), server_default="1", nullable=False),
        sa.Column("zone", sa.Text(), server_default="", nullable=False),
        sa.Column("notify_where", sa.Text(), server_default="", nullable=False),
        sa.Column("quiet", sa.Text(), server_default="", nullable=False),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.Column("push_url", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("channel", "person"),
    )
    op.create_index("people_code", "people", ["code"])
    op.create_index("people_operators", "people", ["channel"], sqlite_where=sa.text("operator=1"))
    op.create_index("people_waiting", "people", ["until"], sqlite_where=sa.text("code<>''"))
    op.create_table(
        "permission_grants",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("given", sa.Float(), nullable=False),
        sa.Column("place", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("conversation", "tool", "subject"),
    )
    op.create_table(
        "person_roles",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("giver", sa.Text(), nullable=False),
        sa.Column("giver_name", sa.Text(), nullable=False),
        sa.Column("given", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "subject"),
    )
    op.create_table(
        "posts",
        sa.Column("reply", sa.Text(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), server_default="", nullable=False),
        sa.Column("message_id", sa.Text(), server_default="", nullable=False),
        sa.Column("sent", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("posts", sa.Integer(), server_default="1", nullable=False),
        sa.Column("question", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("reply", "part"),
    )
    op.create_index("posts_created", "posts", ["created"])
    op.create_index("posts_message", "posts", ["message_id", "thread"])
    op.create_table(
        "questions",
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), server_default="[]", nullable=False),
        sa.Column("free_text", sa.Integer(), server_default="1", nullable=False),
        sa.Column("call", sa.Text(), server_default="", nullable=False),
        sa.Column("call_hash", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("asked", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=True),
        sa.Column("answer", sa.Text(), server_default="", nullable=False),
        sa.Column("answered_by", sa.Text(), server_default="", nullable=False),
        sa.Column("answer_key", sa.Text(), server_default="", nullable=False),
        sa.Column("answered_at", sa.Float(), nullable=True),
        sa.Column("grant_tool", sa.Text(), server_default="", nullable=False),
        sa.Column("grant_subject", sa.Text(), server_default="", nullable=False),
        sa.Column("barred", sa.Text(), server_default="", nullable=False),
        sa.Column("approvers", sa.Text(), server_default="", nullable=False),
        sa.Column("asked_in", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("conversation", "id"),
    )
    op.create_index("questions_asked", "questions", ["asked"])
    op.create_index("questions_asked_in", "questions", ["asked_in", "id"], sqlite_where=sa.text("asked_in<>''"))
    op.create_index("questions_until", "questions", ["until"], sqlite_where=sa.text("state='open'"))
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("reply_to", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("stop_by", sa.Text(), server_default="", nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.Column("language", sa.Text(), server_default="", nullable=False),
        sa.Column("people", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("runs_conversation", "runs", ["conversation", "id"])
    op.create_index("runs_finished", "runs", ["finished"])
    op.create_index("runs_open", "runs", ["conversation", "id"], sqlite_where=sa.text("state IN ('queued', 'running')"))
    op.create_table(
        "schedule_fires",
        sa.Column("schedule", sa.Integer(), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("message", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("schedule", "due"),
    )
    op.create_index("schedule_fires_at", "schedule_fires", ["at"])
    op.create_table(
        "schedules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.Column("guest", sa.Integer(), nullable=False),
        sa.Column("private", sa.Integer(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("missed", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=True),
        sa.Column("changes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("seen", sa.Text(), server_default="", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("schedules_created", "schedules", ["created"])
    op.create_index("schedules_due", "schedules", ["next_at"], sqlite_where=sa.text("state='active'"))
    op.create_index("schedules_owner", "schedules", ["channel", "owner"])
    op.create_index("schedules_thread", "schedules", ["thread"])
    op.create_table(
        "tasks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=False),
        sa.Column("guest", sa.Integer(), nullable=False),
        sa.Column("private", sa.Integer(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("follow_up", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
    op.create_index("tasks_created", "tasks", ["created"])
    op.create_index("tasks_open", "tasks", ["state"], sqlite_where=sa.text("state IN ('queued', 'running')"))
    op.create_index("tasks_person", "tasks", ["channel", "person"])
    op.create_index("tasks_thread", "tasks", ["thread"])
    op.create_table(
        "transcript",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("conversation", "item"),
        sqlite_autoincrement=True,
    )
    op.create_index("transcript_at", "transcript", ["at"])
    op.create_table(
        "usage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("input", sa.Integer(), nullable=False),
        sa.Column("output", sa.Integer(), nullable=False),
        sa.Column("cached", sa.Integer(), nullable=False),
        sa.Column("reasoning", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("person", sa.Text(), server_default="", nullable=False),
        sa.Column("chat", sa.Text(), server_default="", nullable=False),
        sa.Column("price", sa.Text(), server_default="", nullable=False),
        sa.Column("cost", sa.Integer(), nullable=True),
        sa.Column("open", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("usage_at", "usage", ["at"])
    op.create_index("usage_chat", "usage", ["chat", "at"])
    op.create_index("usage_open", "usage", ["id"], sqlite_where=sa.text("open=1"))
    op.create_index("usage_person", "usage", ["person", "at"])
    op.create_index("usage_run", "usage", ["run"])
    op.execute(
        "CREATE VIRTUAL TABLE memory_index USING fts5"
        " (text, before, after, audience, tokenize='porter unicode61 remove_diacritics 2')"
    )
