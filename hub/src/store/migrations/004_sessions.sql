-- A run is a message and what became of it. Its key is the message id: that is the door against
-- duplicates as well, for as long as a row is kept.
CREATE TABLE runs (
    run_id      TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    channel     TEXT NOT NULL,
    sender      TEXT NOT NULL,
    text        TEXT NOT NULL,
    correlation TEXT NOT NULL,
    state       TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    ended_ms    INTEGER,
    events      INTEGER NOT NULL DEFAULT 0,
    reply       TEXT,
    media       TEXT NOT NULL DEFAULT '[]',
    error       TEXT
) STRICT;
CREATE INDEX runs_open ON runs (started_ms) WHERE ended_ms IS NULL;
CREATE INDEX runs_ended ON runs (ended_ms) WHERE ended_ms IS NOT NULL;

-- What a run is about to do, written before it is done. `body` is the intent or the tool call, `outcome`
-- what came of it.
CREATE TABLE steps (
    run_id  TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    body    TEXT NOT NULL,
    action  TEXT,
    outcome TEXT,
    PRIMARY KEY (run_id, call_id)
) STRICT;

-- The question a session was asked last and did not answer yet.
CREATE TABLE questions (
    session_key TEXT PRIMARY KEY,
    question    TEXT NOT NULL,
    asked_ms    INTEGER NOT NULL
) STRICT;
