-- The schema of an early version, which later ones upgrade (tests/unit/bot/test_migrate.py). Its revision is 0025.
CREATE TABLE addresses (
    thread TEXT NOT NULL,
    conversation TEXT NOT NULL,
    count INTEGER DEFAULT '1' NOT NULL,
    PRIMARY KEY (thread)
);
CREATE TABLE agent_defaults (
    reader TEXT NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (reader)
);
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE audit (
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (seq)
);
CREATE TABLE audit_anchors (
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (seq)
);
CREATE TABLE audit_names (
    name TEXT NOT NULL,
    alias TEXT NOT NULL,
    salt BLOB NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE budgets (
    scope TEXT NOT NULL,
    period TEXT NOT NULL,
    money INTEGER,
    tokens INTEGER,
    held_money INTEGER DEFAULT '0' NOT NULL,
    held_tokens INTEGER DEFAULT '0' NOT NULL,
    warned INTEGER DEFAULT '0' NOT NULL,
    until FLOAT NOT NULL,
    PRIMARY KEY (scope, period)
);
CREATE TABLE conversations (
    "key" TEXT NOT NULL,
    thread TEXT NOT NULL,
    title TEXT DEFAULT '' NOT NULL,
    model TEXT DEFAULT '' NOT NULL,
    state TEXT DEFAULT 'idle' NOT NULL,
    pending INTEGER DEFAULT '0' NOT NULL,
    ready FLOAT,
    owner TEXT,
    fence INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    used FLOAT NOT NULL, agent TEXT DEFAULT '' NOT NULL, person TEXT DEFAULT '' NOT NULL, effort TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE feedback (
    run INTEGER NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    value INTEGER NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (run, person)
);
CREATE TABLE gaps (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    since FLOAT NOT NULL
);
CREATE TABLE heard (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    time FLOAT NOT NULL,
    PRIMARY KEY (channel, workspace, chat, topic)
);
CREATE TABLE held_pings (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "key" TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    thread TEXT NOT NULL,
    text TEXT NOT NULL,
    created FLOAT NOT NULL,
    UNIQUE ("key")
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
CREATE TABLE jobs (
    "key" TEXT NOT NULL,
    kind TEXT NOT NULL,
    due FLOAT,
    payload BLOB NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    owner TEXT,
    error TEXT DEFAULT '' NOT NULL,
    created FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE languages (
    reader TEXT NOT NULL,
    language TEXT NOT NULL,
    PRIMARY KEY (reader)
);
CREATE TABLE ledger (
    conversation TEXT NOT NULL,
    call TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (conversation, call)
);
CREATE TABLE memory (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    owner TEXT NOT NULL,
    audience TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    text TEXT NOT NULL,
    confidence FLOAT NOT NULL,
    said FLOAT NOT NULL,
    used FLOAT NOT NULL,
    uses INTEGER NOT NULL,
    name TEXT NOT NULL,
    thread TEXT NOT NULL,
    message TEXT NOT NULL,
    links TEXT NOT NULL,
    superseded_by INTEGER
);
CREATE VIRTUAL TABLE memory_index USING fts5 (text, before, after, audience, tokenize='porter unicode61 remove_diacritics 2');
CREATE TABLE memory_queue (
    run INTEGER NOT NULL,
    account TEXT NOT NULL,
    owner TEXT NOT NULL,
    conversation TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (account, owner, run)
);
CREATE TABLE memory_vectors (
    memory INTEGER NOT NULL,
    model TEXT NOT NULL,
    bits BLOB NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (memory)
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
    error TEXT DEFAULT '' NOT NULL, person TEXT DEFAULT '' NOT NULL, language TEXT DEFAULT '' NOT NULL,
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
    thread TEXT DEFAULT '' NOT NULL, notify FLOAT, operator INTEGER DEFAULT '0' NOT NULL, message BLOB DEFAULT '' NOT NULL, memory INTEGER DEFAULT '1' NOT NULL, zone TEXT DEFAULT '' NOT NULL, notify_where TEXT DEFAULT '' NOT NULL, quiet TEXT DEFAULT '' NOT NULL, digest TEXT DEFAULT '' NOT NULL, push_url TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (channel, person)
);
CREATE TABLE permission_grants (
    id INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    tool TEXT NOT NULL,
    subject TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    given FLOAT NOT NULL, place TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (conversation, tool, subject)
);
CREATE TABLE person_roles (
    channel TEXT NOT NULL,
    subject TEXT NOT NULL,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    giver TEXT NOT NULL,
    giver_name TEXT NOT NULL,
    given FLOAT NOT NULL,
    PRIMARY KEY (channel, subject)
);
CREATE TABLE posts (
    reply TEXT NOT NULL,
    part INTEGER NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT DEFAULT '' NOT NULL,
    message_id TEXT DEFAULT '' NOT NULL,
    sent INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL, posts INTEGER DEFAULT '1' NOT NULL, question TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (reply, part)
);
CREATE TABLE questions (
    conversation TEXT NOT NULL,
    id TEXT NOT NULL,
    run INTEGER NOT NULL,
    number INTEGER DEFAULT '0' NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    options TEXT DEFAULT '[]' NOT NULL,
    free_text INTEGER DEFAULT '1' NOT NULL,
    call TEXT DEFAULT '' NOT NULL,
    call_hash TEXT DEFAULT '' NOT NULL,
    who TEXT DEFAULT '' NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    asked FLOAT NOT NULL,
    until FLOAT,
    answer TEXT DEFAULT '' NOT NULL,
    answered_by TEXT DEFAULT '' NOT NULL,
    answer_key TEXT DEFAULT '' NOT NULL,
    answered_at FLOAT, grant_tool TEXT DEFAULT '' NOT NULL, grant_subject TEXT DEFAULT '' NOT NULL, barred TEXT DEFAULT '' NOT NULL, approvers TEXT DEFAULT '' NOT NULL, asked_in TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (conversation, id)
);
CREATE TABLE runs (
    id INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    requester TEXT NOT NULL,
    reply_to TEXT DEFAULT '' NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER DEFAULT '0' NOT NULL,
    stop_by TEXT DEFAULT '' NOT NULL,
    started FLOAT NOT NULL,
    finished FLOAT, language TEXT DEFAULT '' NOT NULL, people TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE schedule_fires (
    schedule INTEGER NOT NULL,
    due FLOAT NOT NULL,
    at FLOAT NOT NULL,
    result TEXT NOT NULL,
    message INTEGER,
    PRIMARY KEY (schedule, due)
);
CREATE TABLE schedules (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    language TEXT NOT NULL,
    guest INTEGER NOT NULL,
    private INTEGER NOT NULL,
    thread TEXT NOT NULL,
    kind TEXT NOT NULL,
    what TEXT NOT NULL,
    url TEXT NOT NULL,
    form TEXT NOT NULL,
    expression TEXT NOT NULL,
    zone TEXT NOT NULL,
    since FLOAT NOT NULL,
    missed TEXT NOT NULL,
    state TEXT NOT NULL,
    next_at FLOAT,
    changes INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    seen TEXT DEFAULT '' NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL
);
CREATE TABLE tasks (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "key" TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    language TEXT NOT NULL,
    guest INTEGER NOT NULL,
    private INTEGER NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT NOT NULL,
    title TEXT NOT NULL,
    what TEXT NOT NULL,
    follow_up TEXT NOT NULL,
    created FLOAT NOT NULL,
    started FLOAT,
    ended FLOAT,
    exit_code INTEGER,
    reason TEXT DEFAULT '' NOT NULL,
    message INTEGER,
    UNIQUE ("key")
);
CREATE TABLE transcript (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    run INTEGER NOT NULL,
    item TEXT NOT NULL,
    kind TEXT NOT NULL,
    author TEXT NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    state TEXT NOT NULL,
    seconds FLOAT,
    at FLOAT NOT NULL,
    UNIQUE (conversation, item)
);
CREATE TABLE usage (
    id INTEGER NOT NULL,
    run INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    kind TEXT NOT NULL,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    seconds FLOAT NOT NULL,
    at FLOAT NOT NULL, person TEXT DEFAULT '' NOT NULL, chat TEXT DEFAULT '' NOT NULL, price TEXT DEFAULT '' NOT NULL, cost INTEGER, open INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX addresses_conversation ON addresses (conversation);
CREATE INDEX budgets_until ON budgets (until);
CREATE INDEX conversations_owned ON conversations ("key") WHERE owner IS NOT NULL;
CREATE INDEX conversations_ready ON conversations (ready) WHERE pending>0;
CREATE INDEX conversations_thread ON conversations (thread);
CREATE INDEX conversations_used ON conversations (used);
CREATE INDEX conversations_waiting ON conversations (person, ready) WHERE pending>0 AND owner IS NULL;
CREATE INDEX conversations_working ON conversations (person) WHERE owner IS NOT NULL;
CREATE INDEX feedback_at ON feedback (at, value);
CREATE INDEX gaps_place ON gaps (channel, workspace);
CREATE INDEX held_pings_created ON held_pings (created);
CREATE INDEX held_pings_person ON held_pings (channel, person);
CREATE INDEX inbox_author ON inbox (author, received);
CREATE INDEX inbox_commands ON inbox (id) WHERE state=0 AND kind='command';
CREATE INDEX inbox_dead ON inbox (id) WHERE state=3;
CREATE INDEX inbox_open ON inbox (conversation, id) WHERE state=0;
CREATE INDEX inbox_received ON inbox (received);
CREATE INDEX inbox_run ON inbox (run);
CREATE INDEX jobs_owner ON jobs (owner, due);
CREATE INDEX memory_audience ON memory (audience, kind) WHERE superseded_by IS NULL;
CREATE INDEX memory_owner ON memory (account, owner);
CREATE INDEX memory_queue_at ON memory_queue (at);
CREATE INDEX memory_superseded ON memory (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX memory_used ON memory (used);
CREATE INDEX outbox_state ON outbox (state, created);
CREATE INDEX people_code ON people (code);
CREATE INDEX people_operators ON people (channel) WHERE operator=1;
CREATE INDEX people_waiting ON people (until) WHERE code<>'';
CREATE INDEX posts_created ON posts (created);
CREATE INDEX posts_message ON posts (message_id, thread);
CREATE INDEX questions_asked ON questions (asked);
CREATE INDEX questions_asked_in ON questions (asked_in, id) WHERE asked_in<>'';
CREATE INDEX questions_until ON questions (until) WHERE state='open';
CREATE INDEX runs_conversation ON runs (conversation, id);
CREATE INDEX runs_finished ON runs (finished);
CREATE INDEX runs_open ON runs (conversation, id) WHERE state IN ('queued', 'running');
CREATE INDEX schedule_fires_at ON schedule_fires (at);
CREATE INDEX schedules_created ON schedules (created);
CREATE INDEX schedules_due ON schedules (next_at) WHERE state='active';
CREATE INDEX schedules_owner ON schedules (channel, owner);
CREATE INDEX schedules_thread ON schedules (thread);
CREATE INDEX tasks_created ON tasks (created);
CREATE INDEX tasks_open ON tasks (state) WHERE state IN ('queued', 'running');
CREATE INDEX tasks_person ON tasks (channel, person);
CREATE INDEX tasks_thread ON tasks (thread);
CREATE INDEX transcript_at ON transcript (at);
CREATE INDEX usage_at ON usage (at);
CREATE INDEX usage_chat ON usage (chat, at);
CREATE INDEX usage_open ON usage (id) WHERE open=1;
CREATE INDEX usage_person ON usage (person, at);
CREATE INDEX usage_run ON usage (run);
INSERT INTO alembic_version VALUES ('0025');
