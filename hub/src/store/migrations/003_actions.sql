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
