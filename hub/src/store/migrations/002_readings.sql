-- How far each epoch of a node's outbox is stored: advanced in the transaction that inserts the items.
CREATE TABLE epochs (
    id       INTEGER PRIMARY KEY,
    device   BLOB NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    epoch    BLOB NOT NULL,
    seq      INTEGER NOT NULL,
    -- Items that were refused (not a number, too many sensors), and readings lost before they came here.
    refused  INTEGER NOT NULL DEFAULT 0,
    lost     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (device, epoch)
) STRICT;

-- Starts of nodes: `offset_ms` makes Unix milliseconds of the node's monotonic ones; NULL while unknown.
-- `source`: 1 the node's own network-set clock, 2 the hub's clock, 3 estimated from the next start.
CREATE TABLE boots (
    id        INTEGER PRIMARY KEY,
    device    BLOB NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    boot      BLOB NOT NULL,
    offset_ms INTEGER,
    source    INTEGER,
    -- Where its items stand in the outbox, and the latest of them.
    epoch     INTEGER REFERENCES epochs (id) ON DELETE SET NULL,
    first_seq INTEGER NOT NULL DEFAULT 0,
    last_seq  INTEGER NOT NULL DEFAULT 0,
    max_mono  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (device, boot)
) STRICT;

CREATE TABLE sensors (
    id     INTEGER PRIMARY KEY,
    device BLOB NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    name   TEXT NOT NULL,
    last   REAL,
    last_at INTEGER,
    UNIQUE (device, name)
) STRICT;

-- Raw readings, in the order in which they are asked for.
CREATE TABLE readings (
    sensor INTEGER NOT NULL REFERENCES sensors (id) ON DELETE CASCADE,
    at_ms  INTEGER NOT NULL,
    epoch  INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    value  REAL NOT NULL,
    boot   INTEGER NOT NULL,
    -- As `boots.source`.
    dated  INTEGER NOT NULL,
    PRIMARY KEY (sensor, at_ms, epoch, seq)
) STRICT, WITHOUT ROWID;

-- Five-minute summaries; `bucket` is the Unix time of its start in milliseconds.
CREATE TABLE summaries (
    sensor INTEGER NOT NULL REFERENCES sensors (id) ON DELETE CASCADE,
    bucket INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    sum    REAL NOT NULL,
    min    REAL NOT NULL,
    min_at INTEGER NOT NULL,
    max    REAL NOT NULL,
    max_at INTEGER NOT NULL,
    last    REAL NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (sensor, bucket)
) STRICT, WITHOUT ROWID;

-- Readings of a start whose clock is not known yet.
CREATE TABLE undated (
    boot    INTEGER NOT NULL REFERENCES boots (id) ON DELETE CASCADE,
    epoch   INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    mono_ms INTEGER NOT NULL,
    sensor  INTEGER NOT NULL REFERENCES sensors (id) ON DELETE CASCADE,
    value   REAL NOT NULL,
    PRIMARY KEY (boot, epoch, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE node_events (
    id          INTEGER PRIMARY KEY,
    device      BLOB NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    epoch       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    json        TEXT NOT NULL,
    at_ms       INTEGER,
    boot        INTEGER NOT NULL,
    mono_ms     INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    UNIQUE (device, epoch, seq)
) STRICT;
CREATE INDEX node_events_received ON node_events (received_ms);

-- Pictures and other attachments in `media/`.
CREATE TABLE media (
    id         TEXT PRIMARY KEY,
    device     BLOB NOT NULL,
    request    BLOB NOT NULL,
    file       TEXT NOT NULL,
    mime       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    sha256     BLOB NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX media_created ON media (created_ms);
CREATE INDEX media_device ON media (device, created_ms);
