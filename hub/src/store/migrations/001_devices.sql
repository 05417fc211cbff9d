-- Known devices. Waiting ones live in memory: whoever still wants in knocks again.
CREATE TABLE devices (
    id               BLOB PRIMARY KEY CHECK (length(id) = 32),
    key              BLOB NOT NULL CHECK (length(key) = 32),
    -- What it calls itself, escaped and cut; `label` is the operator's own name for it.
    name             TEXT NOT NULL,
    label            TEXT,
    -- `operator`, `node`, or both, separated by commas; the first is the one it was paired with.
    roles            TEXT NOT NULL,
    kind             TEXT NOT NULL CHECK (kind IN ('hearth', 'json')),
    state            TEXT NOT NULL CHECK (state IN ('accepted', 'rejected', 'revoked')),
    platform         TEXT NOT NULL,
    device_family    TEXT NOT NULL,
    client_id        TEXT NOT NULL,
    client_mode      TEXT NOT NULL,
    -- Approved rights of an operator, separated by commas.
    scopes           TEXT NOT NULL,
    -- Approved surface of a node, as a JSON list: settled together with the device.
    surface          TEXT NOT NULL,
    approved_via     TEXT NOT NULL,
    created_ms       INTEGER NOT NULL,
    approved_ms      INTEGER NOT NULL,
    last_seen_ms     INTEGER,
    last_seen_reason TEXT
) STRICT;

-- Only digests of tokens are kept.
CREATE TABLE device_tokens (
    device     BLOB NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    role       TEXT NOT NULL,
    digest     BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    rotated_ms INTEGER,
    PRIMARY KEY (device, role)
) STRICT, WITHOUT ROWID;

-- Setup codes, by the digest of their secret. One is good while the window that made it is open.
CREATE TABLE setup_codes (
    digest     BLOB PRIMARY KEY,
    window     BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER,
    used_by    BLOB,
    alarm_ms   INTEGER
) STRICT, WITHOUT ROWID;

-- Persons' approver keys that go into setup codes.
CREATE TABLE known_approvers (
    key      BLOB PRIMARY KEY,
    kind     TEXT NOT NULL,
    admin    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    added_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What nodes declare, as of their last connection.
CREATE TABLE nodes (
    device          BLOB PRIMARY KEY REFERENCES devices (id) ON DELETE CASCADE,
    -- postcard; NULL for foreign nodes.
    declaration     BLOB,
    declared        TEXT NOT NULL,
    caps            TEXT NOT NULL,
    -- postcard.
    approvers       BLOB NOT NULL,
    version         TEXT NOT NULL,
    -- Of what is declared and not approved; the same until it is settled or the rest changes.
    pending_request TEXT,
    pending_ms      INTEGER,
    -- What a person refused: not asked again.
    refused         TEXT NOT NULL DEFAULT '[]'
) STRICT;
