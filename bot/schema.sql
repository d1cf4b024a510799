-- Made from the migrations; tests/bot/test_migrate.py holds the two equal.
BEGIN;
CREATE TABLE addresses (
    thread TEXT NOT NULL,
    conversation TEXT NOT NULL,
    count INTEGER DEFAULT '1' NOT NULL,
    moved TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (thread)
);
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
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
CREATE TABLE heard (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    time FLOAT NOT NULL,
    PRIMARY KEY (channel, workspace, chat, topic)
);
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
CREATE TABLE ledger (
    conversation TEXT NOT NULL,
    call TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (conversation, call)
);
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
CREATE TABLE outputs (
    conversation TEXT NOT NULL,
    path TEXT NOT NULL,
    stamp TEXT NOT NULL,
    PRIMARY KEY (conversation, path)
);
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
CREATE TABLE posts (
    reply TEXT NOT NULL,
    part INTEGER NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT DEFAULT '' NOT NULL,
    message_id TEXT DEFAULT '' NOT NULL,
    sent INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    PRIMARY KEY (reply, part)
);
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
CREATE INDEX conversations_ready ON conversations (ready) WHERE pending>0;
CREATE INDEX conversations_thread ON conversations (thread);
CREATE INDEX inbox_author ON inbox (author, received);
CREATE INDEX inbox_open ON inbox (conversation, id) WHERE state=0;
CREATE INDEX inbox_received ON inbox (received);
CREATE INDEX inbox_run ON inbox (run);
CREATE INDEX outbox_open ON outbox (thread, id) WHERE state<2;
CREATE INDEX people_code ON people (code);
CREATE INDEX posts_message ON posts (message_id, thread);
CREATE INDEX runs_conversation ON runs (conversation, id);
INSERT INTO alembic_version VALUES ('0002');
COMMIT;
