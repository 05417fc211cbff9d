-- Raw readings before this Unix time (milliseconds) were deleted; what comes later and is older is summarised only,
-- so that the raw readings of a span are either complete or gone.
ALTER TABLE sensors ADD COLUMN raw_from INTEGER NOT NULL DEFAULT 0;
UPDATE sensors SET raw_from = coalesce((SELECT min(at_ms) - min(at_ms) % 300000 FROM readings WHERE sensor = sensors.id), 0);
