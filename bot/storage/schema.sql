-- The tables; tests/bot/test_migrate.py holds them equal to what the migrations build. Times are unix seconds, addresses
-- `str(Thread)`, payloads JSON. A message's way through them: `inbox` (stored once) → `conversations` (who may take it:
-- the lease) → `runs` (a turn and its attempts) → `outbox` (what must become visible) → `posts` (what is visible, and
-- under which id). Finished rows stay for `keep_days`: a statement of a service at work never reads through them, so each
-- finds its rows by an index, many by one of open rows alone (tests/e2e/test_statements.py looks at all of them).
BEGIN;

-- state: 0 new, 1 done, 2 withdrawn by its author, 3 dead (could not be read). `run` is set when a turn took the row,
-- `steered` when that turn was already going. `received` is when it was written, where that was earlier. `bundle` ties
-- pieces that become one message. An id names a run and its posts for ever, so it is never given twice.
CREATE TABLE inbox (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "key" TEXT NOT NULL,
    conversation TEXT NOT NULL,
    kind TEXT NOT NULL,
    author TEXT NOT NULL,
    payload BLOB NOT NULL,
    state INTEGER DEFAULT '0' NOT NULL,
    ready FLOAT NOT NULL,
    received FLOAT NOT NULL,
    bundle TEXT DEFAULT '' NOT NULL,
    run INTEGER,
    steered INTEGER DEFAULT '0' NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    UNIQUE ("key")
);
CREATE INDEX inbox_author ON inbox (author, received);
CREATE INDEX inbox_commands ON inbox (id) WHERE state=0 AND kind='command';
CREATE INDEX inbox_dead ON inbox (id) WHERE state=3;
CREATE INDEX inbox_open ON inbox (conversation, id) WHERE state=0;
CREATE INDEX inbox_received ON inbox (received);
CREATE INDEX inbox_run ON inbox (run);

-- One agent conversation: checkpoint thread, folders and lease. `pending` counts open rows; `ready` is when the first
-- of them may be taken (NULL: none). state: idle, dirty (the checkpoint may hold unfinished work), waiting (`asks`).
CREATE TABLE conversations (
    "key" TEXT NOT NULL,
    thread TEXT NOT NULL,
    title TEXT DEFAULT '' NOT NULL,
    model TEXT DEFAULT '' NOT NULL,
    state TEXT DEFAULT 'idle' NOT NULL,
    asks TEXT DEFAULT '' NOT NULL,
    pending INTEGER DEFAULT '0' NOT NULL,
    ready FLOAT,
    owner TEXT,
    until FLOAT DEFAULT '0' NOT NULL,
    fence INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    used FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX conversations_owned ON conversations ("key") WHERE owner IS NOT NULL;
CREATE INDEX conversations_ready ON conversations (ready) WHERE pending>0;
CREATE INDEX conversations_thread ON conversations (thread);
CREATE INDEX conversations_used ON conversations (used);

-- Which conversation an address is in now; `/new` moves it on, a supergroup takes it along.
CREATE TABLE addresses (
    thread TEXT NOT NULL,
    conversation TEXT NOT NULL,
    count INTEGER DEFAULT '1' NOT NULL,
    PRIMARY KEY (thread)
);
CREATE INDEX addresses_conversation ON addresses (conversation);

-- A turn. state: queued, running, done, waiting, stopped, failed. `id` is the first inbox row's.
CREATE TABLE runs (
    id INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    requester TEXT NOT NULL,
    reply_to TEXT DEFAULT '' NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER DEFAULT '0' NOT NULL,
    stop_by TEXT DEFAULT '' NOT NULL,
    model TEXT DEFAULT '' NOT NULL,
    input INTEGER DEFAULT '0' NOT NULL,
    output INTEGER DEFAULT '0' NOT NULL,
    cached INTEGER DEFAULT '0' NOT NULL,
    calls INTEGER DEFAULT '0' NOT NULL,
    started FLOAT NOT NULL,
    finished FLOAT,
    PRIMARY KEY (id)
);
CREATE INDEX runs_conversation ON runs (conversation, id);
CREATE INDEX runs_finished ON runs (finished);
CREATE INDEX runs_open ON runs (conversation, id) WHERE state IN ('queued', 'running');

-- kind: reply (the end of a run), file, ping (that a long run ended), say (a line of the bot's own). `person` is whom
-- it is for. state: 0 new, 1 claimed, 2 sent, 3 dead, 4 dropped.
CREATE TABLE outbox (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "key" TEXT NOT NULL,
    kind TEXT NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT DEFAULT '' NOT NULL,
    run INTEGER,
    reply_to TEXT DEFAULT '' NOT NULL,
    payload BLOB NOT NULL,
    state INTEGER DEFAULT '0' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    person TEXT DEFAULT '' NOT NULL,
    UNIQUE ("key")
);
CREATE INDEX outbox_state ON outbox (state, created);

-- The messages of a reply on its platform. sent=0: committed right before the call, outcome not known yet; `posts` of
-- such calls went out.
CREATE TABLE posts (
    reply TEXT NOT NULL,
    part INTEGER NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT DEFAULT '' NOT NULL,
    message_id TEXT DEFAULT '' NOT NULL,
    sent INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    posts INTEGER DEFAULT '1' NOT NULL,
    PRIMARY KEY (reply, part)
);
CREATE INDEX posts_created ON posts (created);
CREATE INDEX posts_message ON posts (message_id, thread);

-- Tool calls with effects: started before, result after.
CREATE TABLE ledger (
    conversation TEXT NOT NULL,
    call TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (conversation, call)
);

-- What of outputs/ was handed over already, by its stamp.
CREATE TABLE outputs (
    conversation TEXT NOT NULL,
    path TEXT NOT NULL,
    stamp TEXT NOT NULL,
    PRIMARY KEY (conversation, path)
);

-- Pairing: people who may talk (allowed=1) or who hold a code that the operator has not accepted yet. `notify`: seconds
-- after which the end of a turn pings this person (NULL: as configured, -1: never).
CREATE TABLE people (
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT DEFAULT '' NOT NULL,
    allowed INTEGER DEFAULT '0' NOT NULL,
    code TEXT DEFAULT '' NOT NULL,
    until FLOAT DEFAULT '0' NOT NULL,
    thread TEXT DEFAULT '' NOT NULL,
    notify FLOAT,
    PRIMARY KEY (channel, person)
);
CREATE INDEX people_code ON people (code);

-- The time of the latest event of each chat (topic "") and of each thread in it: where to read on after an absence.
CREATE TABLE heard (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    time FLOAT NOT NULL,
    PRIMARY KEY (channel, workspace, chat, topic)
);

-- Absences of which something is still to be read: what was heard before `since` is complete, whatever `heard` says.
CREATE TABLE gaps (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    since FLOAT NOT NULL
);
CREATE INDEX gaps_place ON gaps (channel, workspace);

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES ('0004');
COMMIT;
