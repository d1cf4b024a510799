-- The tables of new databases. `make schema` adds what migrations/versions change; edit only the comments.
-- Times are unix seconds, addresses `str(Thread)`, payloads JSON. A message passes through `inbox` (each event once) →
-- `conversations` (one claim at a time) → `runs` (turns and their attempts) → `outbox` (rows to deliver) → `posts`
-- (platform messages and their ids). Finished rows stay for `keep_days`. Every statement of the running service finds its
-- rows by an index, often a partial one of open rows, and never scans finished rows (tests/e2e/test_statements.py).
BEGIN;

-- state: 0 new, 1 done, 2 withdrawn by its author, 3 dead (unreadable). `run` is the turn that took the row, `steered`
-- is 1 if that turn was already running. `received` is the earlier of arrival and the author's time. Pieces with the same
-- `bundle` become one message. An id names a run and its posts for good, so AUTOINCREMENT never reuses one.
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
CREATE INDEX inbox_author_conversation ON inbox (author, conversation);
CREATE INDEX inbox_commands ON inbox (id) WHERE state=0 AND kind IN ('command', 'press');
CREATE INDEX inbox_conversation ON inbox (conversation, id);
CREATE INDEX inbox_dead ON inbox (id) WHERE state=3;
CREATE INDEX inbox_open ON inbox (conversation, id) WHERE state=0;
CREATE INDEX inbox_received ON inbox (received);
CREATE INDEX inbox_run ON inbox (run);

-- One conversation of the agent: checkpoint, folders, and the claim of a process (`owner`, `fence`). `pending` counts
-- open rows; `ready` is when the first of them may be claimed (NULL: none), and `person` is its author. state: idle, dirty
-- (the checkpoint may hold unfinished work), waiting (for answers to questions).
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
    used FLOAT NOT NULL,
    agent TEXT DEFAULT '' NOT NULL,
    person TEXT DEFAULT '' NOT NULL,
    effort TEXT DEFAULT '' NOT NULL,
    host TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX conversations_owned ON conversations ("key") WHERE owner IS NOT NULL;
CREATE INDEX conversations_ready ON conversations (ready) WHERE pending>0;
CREATE INDEX conversations_thread ON conversations (thread);
CREATE INDEX conversations_used ON conversations (used);
CREATE INDEX conversations_waiting ON conversations (person, ready) WHERE pending>0 AND owner IS NULL;
CREATE INDEX conversations_working ON conversations (person) WHERE owner IS NOT NULL;

-- The current conversation of each address. `/new` starts another one; a chat that becomes a supergroup keeps its own.
CREATE TABLE addresses (
    thread TEXT NOT NULL,
    conversation TEXT NOT NULL,
    count INTEGER DEFAULT '1' NOT NULL,
    PRIMARY KEY (thread)
);
CREATE INDEX addresses_conversation ON addresses (conversation);

-- state: queued, running, done, waiting, stopped, failed. `id` is the id of the first inbox row.
CREATE TABLE runs (
    id INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    requester TEXT NOT NULL,
    reply_to TEXT DEFAULT '' NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER DEFAULT '0' NOT NULL,
    stop_by TEXT DEFAULT '' NOT NULL,
    started FLOAT NOT NULL,
    finished FLOAT,
    language TEXT DEFAULT '' NOT NULL,
    people TEXT DEFAULT '' NOT NULL,
    parts TEXT DEFAULT '' NOT NULL,
    deaths_alone INTEGER DEFAULT '0' NOT NULL,
    mode TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX runs_conversation ON runs (conversation, id);
CREATE INDEX runs_finished ON runs (finished);
CREATE INDEX runs_open ON runs (conversation, id) WHERE state IN ('queued', 'running');
CREATE INDEX runs_requester ON runs (conversation, requester);

-- kind: ask, approve (with the exact `call` and its SHA-256). `run` is the run whose reply shows it, `number` its number
-- there (0: alone). `who`: ids of those who may answer, separated by spaces ("": everybody who may talk). state: open,
-- answered (a turn must resume with it), closed. `until` is when it expires; `answer_key` is the message that answered.
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
    answered_at FLOAT,
    grant_tool TEXT DEFAULT '' NOT NULL,
    grant_subject TEXT DEFAULT '' NOT NULL,
    barred TEXT DEFAULT '' NOT NULL,
    approvers TEXT DEFAULT '' NOT NULL,
    asked_in TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (conversation, id)
);
CREATE INDEX questions_asked ON questions (asked);
CREATE INDEX questions_asked_in ON questions (asked_in, id) WHERE asked_in<>'';
CREATE INDEX questions_until ON questions (until) WHERE state='open';

-- A row for each model call of a run: agent (lead or a sub-agent), model (its name in the configuration), kind (turn,
-- summary, title, …), tokens, and the seconds that it took until `at`. `person` asked for it, in `chat`. `cost` is in
-- micro-dollars (NULL: unknown), `price` says where the price comes from. `open`: it is under way and has its input only.
-- A call under a budget has the time of its reservation in `at`.
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
    at FLOAT NOT NULL,
    person TEXT DEFAULT '' NOT NULL,
    chat TEXT DEFAULT '' NOT NULL,
    price TEXT DEFAULT '' NOT NULL,
    cost INTEGER,
    open INTEGER DEFAULT '0' NOT NULL,
    began FLOAT DEFAULT '0' NOT NULL,
    owner TEXT,
    PRIMARY KEY (id)
);
CREATE INDEX usage_at ON usage (at);
CREATE INDEX usage_chat ON usage (chat, at);
CREATE INDEX usage_open ON usage (id) WHERE open=1;
CREATE INDEX usage_person ON usage (person, at);
CREATE INDEX usage_run ON usage (run);

-- Background jobs until they are done. `due` is NULL when a job was given up, `owner` names the process that runs it,
-- `error` is the last one. `payload` depends on the kind.
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
CREATE INDEX jobs_owner ON jobs (owner, due);

-- kind: reply (the end of a run), file (the files of a run), ping (a long run ended), say (a notice of the bot). `person` is the addressee.
-- state: 0 new, 1 claimed, 2 sent, 3 dead, 4 dropped.
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
    language TEXT DEFAULT '' NOT NULL,
    owner TEXT,
    host TEXT DEFAULT '' NOT NULL,
    UNIQUE ("key")
);
CREATE INDEX outbox_state ON outbox (state, created);

-- The platform messages of a reply. sent=0: committed right before the call, outcome unknown; `posts` counts such calls.
-- `question` is the id of the question that the message shows.
CREATE TABLE posts (
    reply TEXT NOT NULL,
    part INTEGER NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT DEFAULT '' NOT NULL,
    message_id TEXT DEFAULT '' NOT NULL,
    sent INTEGER DEFAULT '0' NOT NULL,
    created FLOAT NOT NULL,
    posts INTEGER DEFAULT '1' NOT NULL,
    question TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (reply, part)
);
CREATE INDEX posts_created ON posts (created);
CREATE INDEX posts_handle ON posts (substr(message_id, instr(message_id, '/'))) WHERE instr(message_id, '/')>0;
CREATE INDEX posts_message ON posts (message_id, thread);
CREATE INDEX posts_question ON posts (question) WHERE question<>'';

-- Tool calls with effects: a row before the call, its result afterwards.
CREATE TABLE ledger (
    conversation TEXT NOT NULL,
    call TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (conversation, call)
);

-- Files of outputs/ that were sent already, with the stamp of the version sent.
CREATE TABLE outputs (
    conversation TEXT NOT NULL,
    path TEXT NOT NULL,
    stamp TEXT NOT NULL,
    PRIMARY KEY (conversation, path)
);

-- Pairing: people who may talk (allowed=1), were declined (-1) or hold a code that no operator has accepted yet; until
-- then `message` is what they wrote first. `thread` is the private chat of a person or an operator. A turn that takes
-- longer than `notify` seconds pings this person when it ends (NULL: as configured, -1: never).
CREATE TABLE people (
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT DEFAULT '' NOT NULL,
    allowed INTEGER DEFAULT '0' NOT NULL,
    code TEXT DEFAULT '' NOT NULL,
    until FLOAT DEFAULT '0' NOT NULL,
    thread TEXT DEFAULT '' NOT NULL,
    notify FLOAT,
    operator INTEGER DEFAULT '0' NOT NULL,
    message BLOB DEFAULT '' NOT NULL,
    memory INTEGER DEFAULT '1' NOT NULL,
    zone TEXT DEFAULT '' NOT NULL,
    notify_where TEXT DEFAULT '' NOT NULL,
    quiet TEXT DEFAULT '' NOT NULL,
    digest TEXT DEFAULT '' NOT NULL,
    push_url TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (channel, person)
);
CREATE INDEX people_code ON people (code);
CREATE INDEX people_operators ON people (channel) WHERE operator=1;
CREATE INDEX people_waiting ON people (until) WHERE code<>'';
CREATE INDEX people_with_push ON people (channel) WHERE push_url<>'';

-- Watermarks: the time of the latest event of each chat (topic "") and of each of its threads. A catch-up starts there.
CREATE TABLE heard (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    time FLOAT NOT NULL,
    PRIMARY KEY (channel, workspace, chat, topic)
);
CREATE INDEX heard_topics ON heard (time) WHERE topic<>'';

-- Catch-ups that are not finished. Events before `since` are complete, whatever the watermarks in `heard` say.
CREATE TABLE gaps (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    since FLOAT NOT NULL
);
CREATE INDEX gaps_place ON gaps (channel, workspace);

-- What people and the agent said and did, written by the transaction that ends the run. kind: message and answer (of a
-- person: `author`, `name`), text, question, step (with `state` and `seconds`), file, notice. `item` names an entry within
-- its conversation, so that a run that resumes an earlier one does not repeat it.
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
    asks TEXT DEFAULT '' NOT NULL,
    parent TEXT DEFAULT '' NOT NULL,
    step_title TEXT DEFAULT '' NOT NULL,
    output TEXT DEFAULT '' NOT NULL,
    UNIQUE (conversation, item)
);
CREATE INDEX transcript_asks ON transcript (conversation) WHERE asks<>'';
CREATE INDEX transcript_at ON transcript (at);
CREATE INDEX transcript_author ON transcript (conversation, author, run);
CREATE INDEX transcript_conversation ON transcript (conversation, id);

-- The languages chosen with /language: `reader` is the address of a person (without workspace) or of a chat (without
-- topic). `language` of a run is the one that the platform reported of its requester.
CREATE TABLE languages (
    reader TEXT NOT NULL,
    language TEXT NOT NULL,
    PRIMARY KEY (reader)
);

-- What people think of the answer of a run: the latest of each person. value: 1 (👍), -1 (👎), 0 (taken back).
CREATE TABLE feedback (
    run INTEGER NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    value INTEGER NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (run, person)
);
CREATE INDEX feedback_at ON feedback (at, value);
CREATE INDEX feedback_person ON feedback (person);

CREATE TABLE permission_grants (
    id INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    tool TEXT NOT NULL,
    subject TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    given FLOAT NOT NULL,
    place TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (conversation, tool, subject)
);
CREATE INDEX permission_grants_people ON permission_grants (channel, person) WHERE person<>'';

CREATE TABLE agent_defaults (
    reader TEXT NOT NULL,
    agent TEXT NOT NULL,
    model TEXT DEFAULT '' NOT NULL,
    effort TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (reader)
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
CREATE INDEX memory_audience ON memory (audience, kind) WHERE superseded_by IS NULL;
CREATE INDEX memory_owner ON memory (account, owner);
CREATE INDEX memory_superseded ON memory (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX memory_used ON memory (used);

CREATE VIRTUAL TABLE memory_index USING fts5 (text, before, after, audience, tokenize='porter unicode61 remove_diacritics 2');

CREATE TABLE memory_queue (
    run INTEGER NOT NULL,
    account TEXT NOT NULL,
    owner TEXT NOT NULL,
    conversation TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (account, owner, run)
);
CREATE INDEX memory_queue_at ON memory_queue (at);

CREATE TABLE memory_vectors (
    memory INTEGER NOT NULL,
    model TEXT NOT NULL,
    bits BLOB NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (memory)
);

-- What is spent and held of each budget, in micro-dollars and tokens: sums over `usage`, NULL until the first call after a
-- start sums them up. `until` is the end of the period in unix time, `warned` whether people know that it is nearly used up.
CREATE TABLE budgets (
    scope TEXT NOT NULL,
    period TEXT NOT NULL,
    money INTEGER,
    tokens INTEGER,
    warned INTEGER DEFAULT '0' NOT NULL,
    until FLOAT NOT NULL,
    PRIMARY KEY (scope, period)
);
CREATE INDEX budgets_until ON budgets (until);

-- The audit: hash = SHA-256(hash of the row before || seq as 8 bytes || body). `audit_anchors` has the last row that
-- retention deleted. `audit_names`: pseudonym (`alias`, a hash of salt and name) -> address of a person or thread, and the
-- last row that used it. Who is forgotten loses this row only, so that the chain stays valid.
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

CREATE TABLE schedule_fires (
    schedule INTEGER NOT NULL,
    due FLOAT NOT NULL,
    at FLOAT NOT NULL,
    result TEXT NOT NULL,
    message INTEGER,
    PRIMARY KEY (schedule, due)
);
CREATE INDEX schedule_fires_at ON schedule_fires (at);

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
,
    moves INTEGER DEFAULT '0' NOT NULL);
CREATE INDEX schedules_created ON schedules (created);
CREATE INDEX schedules_due ON schedules (next_at) WHERE state='active';
CREATE INDEX schedules_owner ON schedules (channel, owner);
CREATE INDEX schedules_owners ON schedules (channel, owner) WHERE state='active';
CREATE INDEX schedules_thread ON schedules (thread);

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
CREATE INDEX held_pings_created ON held_pings (created);
CREATE INDEX held_pings_person ON held_pings (channel, person);

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
    begun_in INTEGER,
    tool TEXT DEFAULT '' NOT NULL,
    owner TEXT,
    UNIQUE ("key")
);
CREATE INDEX tasks_created ON tasks (created);
CREATE INDEX tasks_open ON tasks (state) WHERE state IN ('queued', 'running');
CREATE INDEX tasks_person ON tasks (channel, person);
CREATE INDEX tasks_thread ON tasks (thread);

CREATE TABLE follow_ups (
    "key" TEXT NOT NULL,
    root TEXT NOT NULL,
    generation INTEGER NOT NULL,
    person TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX follow_ups_at ON follow_ups (at);
CREATE INDEX follow_ups_person ON follow_ups (person, at);
CREATE INDEX follow_ups_root ON follow_ups (root);

-- What rules judged of each tool call, and their verdict then: other rules can be tried on it. `fallback` is the verdict
-- without a rule; `people` are all whose messages the run answers.
CREATE TABLE calls (
    id INTEGER NOT NULL,
    run INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    call TEXT NOT NULL,
    thread TEXT NOT NULL,
    person TEXT NOT NULL,
    people TEXT NOT NULL,
    tool TEXT NOT NULL,
    argument TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    real TEXT NOT NULL,
    fallback TEXT NOT NULL,
    verdict TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (conversation, call)
);
CREATE INDEX calls_at ON calls (at);

CREATE TABLE quoted (
    person TEXT NOT NULL,
    message TEXT NOT NULL,
    conversation TEXT NOT NULL,
    PRIMARY KEY (person, message)
);
CREATE INDEX quoted_conversation ON quoted (conversation);

CREATE TABLE exposures (
    conversation TEXT NOT NULL,
    private INTEGER DEFAULT '0' NOT NULL,
    untrusted INTEGER DEFAULT '0' NOT NULL,
    files INTEGER DEFAULT '0' NOT NULL,
    known BLOB DEFAULT '' NOT NULL,
    said BLOB DEFAULT '' NOT NULL,
    listed BLOB DEFAULT '' NOT NULL,
    private_words BLOB DEFAULT '' NOT NULL,
    PRIMARY KEY (conversation)
);

CREATE TABLE departures (
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    since FLOAT NOT NULL,
    PRIMARY KEY (channel, person)
);

CREATE TABLE plan_holds (
    conversation TEXT NOT NULL,
    scope TEXT NOT NULL,
    period TEXT NOT NULL,
    money INTEGER DEFAULT '0' NOT NULL,
    tokens INTEGER DEFAULT '0' NOT NULL,
    taken_money INTEGER DEFAULT '0' NOT NULL,
    taken_tokens INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (conversation, scope, period)
);

CREATE TABLE outcome_errors (
    day INTEGER NOT NULL,
    used TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    error TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (day, used, name, role, error)
);

CREATE TABLE outcomes (
    day INTEGER NOT NULL,
    used TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    requests INTEGER DEFAULT '0' NOT NULL,
    calls INTEGER DEFAULT '0' NOT NULL,
    failed INTEGER DEFAULT '0' NOT NULL,
    cost INTEGER DEFAULT '0' NOT NULL,
    up INTEGER DEFAULT '0' NOT NULL,
    down INTEGER DEFAULT '0' NOT NULL,
    seconds FLOAT DEFAULT '0' NOT NULL,
    PRIMARY KEY (day, used, name, role)
);

CREATE TABLE checkpoint_writes (
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    idx INTEGER NOT NULL,
    path TEXT NOT NULL,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (thread, ns, id, task, idx)
);

CREATE TABLE checkpoints (
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    state BLOB NOT NULL,
    meta_kind TEXT NOT NULL,
    meta BLOB NOT NULL,
    PRIMARY KEY (thread, ns)
);

CREATE TABLE side_posts (
    id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    thread TEXT NOT NULL,
    conversation TEXT NOT NULL,
    person TEXT NOT NULL,
    origin TEXT NOT NULL,
    text TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE ("key")
);
CREATE INDEX side_posts_at ON side_posts (at);
CREATE INDEX side_posts_of_thread ON side_posts (thread);
CREATE INDEX side_posts_person ON side_posts (person);

CREATE TABLE listening (
    chat TEXT NOT NULL,
    since FLOAT NOT NULL,
    PRIMARY KEY (chat)
);

CREATE TABLE overheard (
    id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    thread TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    message TEXT NOT NULL,
    text TEXT NOT NULL,
    at FLOAT NOT NULL,
    member INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (id),
    UNIQUE ("key")
);
CREATE INDEX overheard_at ON overheard (at);
CREATE INDEX overheard_of_thread ON overheard (thread, id);
CREATE INDEX overheard_person ON overheard (person);

CREATE TABLE hook_deliveries (
    id INTEGER NOT NULL,
    hook TEXT NOT NULL,
    "key" TEXT NOT NULL,
    digest TEXT NOT NULL,
    group_key TEXT NOT NULL,
    event BLOB NOT NULL,
    received FLOAT NOT NULL,
    state TEXT NOT NULL,
    conversation TEXT DEFAULT '' NOT NULL,
    posted FLOAT,
    PRIMARY KEY (id),
    UNIQUE (hook, "key")
);
CREATE INDEX hook_deliveries_digest ON hook_deliveries (hook, digest, received);
CREATE INDEX hook_deliveries_of_state ON hook_deliveries (hook, state, id);
CREATE INDEX hook_deliveries_posted ON hook_deliveries (hook, posted);
CREATE INDEX hook_deliveries_received ON hook_deliveries (received);

CREATE TABLE hook_groups (
    hook TEXT NOT NULL,
    thread TEXT NOT NULL,
    group_key TEXT NOT NULL,
    conversation TEXT NOT NULL,
    used FLOAT NOT NULL,
    root TEXT DEFAULT '' NOT NULL,
    place TEXT DEFAULT '' NOT NULL,
    shown INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (hook, thread, group_key)
);
CREATE INDEX hook_groups_used ON hook_groups (used);

CREATE TABLE hook_refusals (
    hook TEXT NOT NULL,
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (hook, reason)
);
CREATE INDEX hook_refusals_at ON hook_refusals (at);

CREATE TABLE api_keys (
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created FLOAT NOT NULL,
    expires FLOAT,
    used FLOAT,
    PRIMARY KEY (hash),
    UNIQUE (name)
);
CREATE INDEX api_keys_of_person ON api_keys (channel, person);

CREATE TABLE waiting_numbers (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL,
    listed FLOAT NOT NULL,
    UNIQUE (subject)
);
CREATE INDEX waiting_numbers_listed ON waiting_numbers (listed);

CREATE TABLE page_sessions (
    hash TEXT NOT NULL,
    kind TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    scopes TEXT NOT NULL,
    "key" TEXT NOT NULL,
    created FLOAT NOT NULL,
    until FLOAT NOT NULL,
    PRIMARY KEY (hash)
);
CREATE INDEX page_sessions_of_person ON page_sessions (channel, person);
CREATE INDEX page_sessions_until ON page_sessions (until);

CREATE TABLE identity (
    id TEXT NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE web_files (
    id TEXT NOT NULL,
    thread TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    caption TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX web_files_at ON web_files (at);
CREATE INDEX web_files_person ON web_files (person);

CREATE TABLE web_threads (
    thread TEXT NOT NULL,
    person TEXT NOT NULL,
    metadata TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (thread)
);
CREATE INDEX web_threads_at ON web_threads (at);
CREATE INDEX web_threads_person ON web_threads (person, at);

CREATE TABLE hand_overs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    giver TEXT NOT NULL,
    giver_name TEXT NOT NULL,
    deputy TEXT NOT NULL,
    deputy_name TEXT NOT NULL,
    subject TEXT NOT NULL,
    number INTEGER NOT NULL,
    since FLOAT NOT NULL,
    until FLOAT NOT NULL,
    ended FLOAT
);
CREATE INDEX hand_overs_deputy ON hand_overs (channel, deputy);
CREATE INDEX hand_overs_giver ON hand_overs (channel, giver);
CREATE INDEX hand_overs_until ON hand_overs (until);

CREATE TABLE account_links (
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    guest INTEGER NOT NULL,
    linked TEXT NOT NULL,
    since FLOAT NOT NULL,
    PRIMARY KEY (channel, person)
);
CREATE INDEX account_links_linked ON account_links (linked);

CREATE TABLE link_codes (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    code TEXT NOT NULL,
    until FLOAT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    guest INTEGER NOT NULL,
    to_channel TEXT NOT NULL,
    to_person TEXT NOT NULL,
    to_name TEXT NOT NULL,
    to_guest INTEGER NOT NULL,
    agreed INTEGER NOT NULL
);
CREATE INDEX link_codes_until ON link_codes (until);

CREATE TABLE channel_state (
    channel TEXT NOT NULL,
    item TEXT NOT NULL,
    value TEXT NOT NULL,
    author TEXT DEFAULT '' NOT NULL,
    until FLOAT,
    PRIMARY KEY (channel, item)
);

CREATE TABLE run_steps (
    conversation TEXT NOT NULL,
    item TEXT NOT NULL,
    parent TEXT NOT NULL,
    text TEXT NOT NULL,
    step_title TEXT NOT NULL,
    state TEXT NOT NULL,
    at FLOAT NOT NULL,
    seconds FLOAT,
    output TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (conversation, item)
);

CREATE TABLE reply_handles (
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    token TEXT NOT NULL,
    author TEXT NOT NULL,
    until FLOAT NOT NULL,
    PRIMARY KEY (chat, message)
);
CREATE INDEX reply_handles_until ON reply_handles (until);

-- The processes that work on this database. Who has a lease lives: `until` is in the time of the database, and has no end
-- where a lock keeps all others away. What names a dead process as its `owner` is released.
CREATE TABLE replicas (
    id TEXT NOT NULL,
    host TEXT NOT NULL,
    until FLOAT NOT NULL,
    started_at FLOAT NOT NULL,
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT DEFAULT 'serving' NOT NULL,
    data_lock TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE leases (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    taken_at FLOAT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE budget_holds (
    scope TEXT NOT NULL,
    period TEXT NOT NULL,
    call BIGINT NOT NULL,
    "plan" TEXT DEFAULT '' NOT NULL,
    money BIGINT DEFAULT '0' NOT NULL,
    tokens BIGINT DEFAULT '0' NOT NULL,
    taken_money BIGINT DEFAULT '0' NOT NULL,
    taken_tokens BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (scope, period, call)
);
CREATE INDEX budget_holds_call ON budget_holds (call);

CREATE TABLE shared_files (
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    content BLOB,
    PRIMARY KEY (name)
);

CREATE TABLE skill_versions (
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    part BIGINT NOT NULL,
    parts BIGINT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (name, hash, part)
);

CREATE TABLE tool_uses (
    "key" TEXT NOT NULL,
    tool TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX tool_uses_by_time ON tool_uses (at);

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES ('0133');
COMMIT;
