-- Where the command of a request runs: `node`, or `gateway` for this machine, where the hub only asks.
ALTER TABLE actions ADD COLUMN host TEXT NOT NULL DEFAULT 'node';
-- How long it may wait for a person, when its requester named less than the configured lifetime.
ALTER TABLE actions ADD COLUMN ask_ms INTEGER;
