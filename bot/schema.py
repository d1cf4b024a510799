"""The tables, for Alembic and for a reader. Times are unix seconds, addresses `str(Thread)`, payloads JSON.

A message's way through them: `inbox` (stored once) → `conversations` (who may take it: the lease) → `runs` (a turn and
its attempts) → `outbox` (what must become visible) → `posts` (what is visible under which id).
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, text

metadata = MetaData()

# state: 0 new, 1 done, 2 withdrawn by its author, 3 dead (could not be read). `run` is set when a turn took the row,
# `steered` when that turn was already going. `bundle` ties pieces that become one message.
inbox = Table(
    "inbox",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False, unique=True),
    Column("conversation", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("state", Integer, nullable=False, server_default="0"),
    Column("ready", Float, nullable=False),
    Column("received", Float, nullable=False),
    Column("bundle", Text, nullable=False, server_default=""),
    Column("run", Integer),
    Column("steered", Integer, nullable=False, server_default="0"),
    Column("error", Text, nullable=False, server_default=""),
    sqlite_autoincrement=True,  # an id names a run and its posts for ever: never given twice
)
Index("inbox_open", inbox.c.conversation, inbox.c.id, sqlite_where=text("state=0"), postgresql_where=text("state=0"))
Index("inbox_run", inbox.c.run)
Index("inbox_author", inbox.c.author, inbox.c.received)
Index("inbox_received", inbox.c.received)

# One agent conversation: checkpoint thread, folders and lease. `pending` counts open rows; `ready` is when the first
# of them may be taken (NULL: none). state: idle, dirty (the checkpoint may hold unfinished work), waiting (`asks`).
conversations = Table(
    "conversations",
    metadata,
    Column("key", Text, primary_key=True),
    Column("thread", Text, nullable=False),
    Column("title", Text, nullable=False, server_default=""),
    Column("model", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False, server_default="idle"),
    Column("asks", Text, nullable=False, server_default=""),
    Column("pending", Integer, nullable=False, server_default="0"),
    Column("ready", Float),
    Column("owner", Text),
    Column("until", Float, nullable=False, server_default="0"),
    Column("fence", Integer, nullable=False, server_default="0"),
    Column("created", Float, nullable=False),
    Column("used", Float, nullable=False),
)
Index("conversations_ready", conversations.c.ready, sqlite_where=text("pending>0"), postgresql_where=text("pending>0"))
Index("conversations_thread", conversations.c.thread)

# Which conversation an address is in now; `/new` moves it on, a supergroup takes it along.
addresses = Table(
    "addresses",
    metadata,
    Column("thread", Text, primary_key=True),
    Column("conversation", Text, nullable=False),
    Column("count", Integer, nullable=False, server_default="1"),
    Column("moved", Text, nullable=False, server_default=""),
)

# A turn. state: queued, running, done, waiting, stopped, failed. `id` is the first inbox row's.
runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("conversation", Text, nullable=False),
    Column("requester", Text, nullable=False),
    Column("reply_to", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("stop_by", Text, nullable=False, server_default=""),
    Column("model", Text, nullable=False, server_default=""),
    Column("input", Integer, nullable=False, server_default="0"),
    Column("output", Integer, nullable=False, server_default="0"),
    Column("cached", Integer, nullable=False, server_default="0"),
    Column("calls", Integer, nullable=False, server_default="0"),
    Column("started", Float, nullable=False),
    Column("finished", Float),
)
Index("runs_conversation", runs.c.conversation, runs.c.id)

# kind: reply (the end of a run), file, ping (that a long run ended), say (a line of the bot's own). `person` is whom it
# is for.
# state: 0 new, 1 claimed, 2 sent, 3 dead, 4 dropped.
outbox = Table(
    "outbox",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("thread", Text, nullable=False),
    Column("conversation", Text, nullable=False, server_default=""),
    Column("run", Integer),
    Column("reply_to", Text, nullable=False, server_default=""),
    Column("payload", LargeBinary, nullable=False),
    Column("state", Integer, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created", Float, nullable=False),
    Column("error", Text, nullable=False, server_default=""),
    Column("person", Text, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)
Index("outbox_open", outbox.c.thread, outbox.c.id, sqlite_where=text("state<2"), postgresql_where=text("state<2"))

# The messages of a reply on its platform. sent=0: committed right before the call, outcome not known yet.
posts = Table(
    "posts",
    metadata,
    Column("reply", Text, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("thread", Text, nullable=False),
    Column("conversation", Text, nullable=False, server_default=""),
    Column("message_id", Text, nullable=False, server_default=""),
    Column("sent", Integer, nullable=False, server_default="0"),
    Column("created", Float, nullable=False),
)
Index("posts_message", posts.c.message_id, posts.c.thread)

# Tool calls with effects: started before, result after.
ledger = Table(
    "ledger",
    metadata,
    Column("conversation", Text, primary_key=True),
    Column("call", Text, primary_key=True),
    Column("result", Text),
)

# What of outputs/ was handed over already, by its stamp.
outputs = Table(
    "outputs",
    metadata,
    Column("conversation", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("stamp", Text, nullable=False),
)

# Pairing: people who may talk (allowed=1) or who hold a code that the operator has not accepted yet. `notify`: seconds
# after which the end of a turn pings this person (NULL: as configured, -1: never).
people = Table(
    "people",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("person", Text, primary_key=True),
    Column("name", Text, nullable=False, server_default=""),
    Column("allowed", Integer, nullable=False, server_default="0"),
    Column("code", Text, nullable=False, server_default=""),
    Column("until", Float, nullable=False, server_default="0"),
    Column("thread", Text, nullable=False, server_default=""),
    Column("notify", Float),
)
Index("people_code", people.c.code)

# The time of the latest event of each chat (topic "") and of each thread in it: where to read on after an absence.
heard = Table(
    "heard",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("workspace", Text, primary_key=True),
    Column("chat", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("time", Float, nullable=False),
)
