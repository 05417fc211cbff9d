-- Where browsers are reached when their page is closed (Web Push). They go with their device.
CREATE TABLE push_subscriptions (
    endpoint   TEXT PRIMARY KEY,
    device     BLOB NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    -- Of the browser: its public key and the secret that belongs to it.
    p256dh     BLOB NOT NULL CHECK (length(p256dh) = 65),
    auth       BLOB NOT NULL CHECK (length(auth) = 16),
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX push_subscriptions_device ON push_subscriptions (device);
