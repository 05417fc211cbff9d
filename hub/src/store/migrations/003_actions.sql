-- The audit log: a hash chain, see hearth_shared::chain. Rows are only ever appended.
CREATE TABLE audit (
    seq   INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    body  TEXT    NOT NULL,
    prev  BLOB    NOT NULL,
    hash  BLOB    NOT NULL
) STRICT;

-- Heads of the nodes' own logs, as they reported them with signed receipts: the newest ones of each
-- node, so that another hash at a number seen before shows.
CREATE TABLE node_heads (
    node     TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    hash     BLOB    NOT NULL,
    noted_ms INTEGER NOT NULL,
    PRIMARY KEY (node, seq)
) STRICT, WITHOUT ROWID;

-- What was found wrong with a node's log; stays until the node is removed.
CREATE TABLE node_head_faults (
    node     TEXT PRIMARY KEY,
    fault    TEXT    NOT NULL,
    noted_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Heads of this log that others hold: `node:<id>` got one with a request and answered it,
-- `approver:<who>` was shown one with a card.
CREATE TABLE approver_heads (
    holder   TEXT PRIMARY KEY,
    seq      INTEGER NOT NULL,
    hash     BLOB    NOT NULL,
    noted_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Durable requests to nodes. `params` is the stored plan: what is shown, approved and sent.
CREATE TABLE actions (
    id               TEXT PRIMARY KEY,
    node             TEXT    NOT NULL,
    node_name        TEXT    NOT NULL,
    checked_on_node  INTEGER NOT NULL,
    command          TEXT    NOT NULL,
    params           TEXT    NOT NULL,
    class            TEXT    NOT NULL,
    -- What the hub's own rules want at least: none or hub.
    raise            TEXT    NOT NULL,
    requester        TEXT    NOT NULL,
    requester_device TEXT,
    reason           TEXT,
    session_key      TEXT,
    run_id           TEXT,
    timeout_ms       INTEGER NOT NULL,
    wait_for_node    INTEGER NOT NULL,
    correlation      TEXT    NOT NULL,
    state            TEXT    NOT NULL,
    -- On the hub's powered clock (see `powered`): end of the wait the state is in.
    deadline_ms      INTEGER,
    -- Somebody withdrew it after it was sent.
    withdrawn_by     TEXT,
    result           TEXT,
    media            TEXT,
    error            TEXT,
    created_ms       INTEGER NOT NULL,
    finished_ms      INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX actions_open ON actions (state) WHERE finished_ms IS NULL;
CREATE INDEX actions_finished ON actions (finished_ms) WHERE finished_ms IS NOT NULL;

CREATE TABLE approvals (
    id          TEXT PRIMARY KEY REFERENCES actions (id) ON DELETE CASCADE,
    sentence    TEXT    NOT NULL,
    need        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    -- On the hub's powered clock.
    deadline_ms INTEGER NOT NULL,
    decision    TEXT,
    decided_by  TEXT,
    decided_ms  INTEGER,
    -- Whether the hub may sign what was decided; else only the grant that came with the decision counts.
    by_hub      INTEGER,
    -- Digest of the card that whoever decided had seen.
    seen        TEXT,
    -- Why it is asked again.
    note        TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_by_time ON approvals (created_ms);

-- Challenges that were shown: what is signed later must be about the same matter.
CREATE TABLE approval_cards (
    approval TEXT    NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    digest   TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    text     TEXT    NOT NULL,
    -- End of the audit log when it was shown.
    head_seq  INTEGER NOT NULL,
    head_hash BLOB    NOT NULL,
    PRIMARY KEY (approval, digest)
) STRICT, WITHOUT ROWID;

-- Idempotency keys of effects, kept for 24 hours.
CREATE TABLE effect_keys (
    requester  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    plan       BLOB    NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (requester, key)
) STRICT, WITHOUT ROWID;

-- One row: how long the hub has been running in all. Requests live by this clock, so that a hub that was
-- switched off does not let them expire.
CREATE TABLE powered (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    total_ms INTEGER NOT NULL
) STRICT;
