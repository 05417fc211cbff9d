-- Where the answer of a run is to be sent (JSON), for channels to which the hub pushes; and whether it was
-- taken into the outbox.
ALTER TABLE runs ADD COLUMN reply_to TEXT;
ALTER TABLE runs ADD COLUMN handed_over INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_to_hand_over ON runs (ended_ms) WHERE reply_to IS NOT NULL AND handed_over = 0;

-- How far an account has received, in the platform's own words.
CREATE TABLE channel_cursors (
    channel TEXT PRIMARY KEY,
    cursor  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- People who were let in, beside those in the configuration.
CREATE TABLE channel_people (
    channel    TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    -- What he called himself, escaped and cut.
    name       TEXT    NOT NULL,
    may_decide INTEGER NOT NULL,
    added_ms   INTEGER NOT NULL,
    added_by   TEXT    NOT NULL,
    PRIMARY KEY (channel, person)
) STRICT, WITHOUT ROWID;

-- People who wrote and are not known, with the code each was given.
CREATE TABLE channel_knocks (
    channel    TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    code       TEXT    NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, person)
) STRICT, WITHOUT ROWID;

-- Messages to be sent, one row each, in order. The key says what for, so that nothing is queued twice.
CREATE TABLE outbox (
    id           INTEGER PRIMARY KEY,
    key          TEXT    NOT NULL UNIQUE,
    channel      TEXT    NOT NULL,
    conversation TEXT    NOT NULL,
    -- JSON of the part.
    part         TEXT    NOT NULL,
    -- `draft`: still being written; `waiting`, `sent`, `failed`.
    state        TEXT    NOT NULL,
    -- The platform's id, once it is known.
    message      TEXT,
    -- Sending has begun and no answer came yet: it may be there. `mark` is where the conversation stood.
    begun        INTEGER NOT NULL DEFAULT 0,
    mark         TEXT,
    tries        INTEGER NOT NULL DEFAULT 0,
    error        TEXT,
    created_ms   INTEGER NOT NULL,
    ended_ms     INTEGER
) STRICT;
CREATE INDEX outbox_waiting ON outbox (channel, id) WHERE state = 'waiting';
CREATE INDEX outbox_ended ON outbox (ended_ms) WHERE ended_ms IS NOT NULL;

-- Cards of approvals in conversations. `token` is the SHA-256 of what the buttons carry; the message is
-- found in the outbox under `card/<id>`.
CREATE TABLE channel_cards (
    id           INTEGER PRIMARY KEY,
    approval     TEXT    NOT NULL,
    channel      TEXT    NOT NULL,
    person       TEXT    NOT NULL,
    conversation TEXT    NOT NULL,
    token        BLOB    NOT NULL UNIQUE,
    -- Digest of the challenge the card was made from; NULL when there was none.
    seen         TEXT,
    -- The words above the decision, for the edit that follows it.
    body         TEXT    NOT NULL,
    closed       INTEGER NOT NULL DEFAULT 0,
    created_ms   INTEGER NOT NULL
) STRICT;
CREATE INDEX channel_cards_open ON channel_cards (approval) WHERE closed = 0;
