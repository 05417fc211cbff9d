-- One-time links that let a page in stand beside the setup codes of nodes: the same secret, used once, with
-- the same alarm. A link has rights and an end of its own and does not depend on a pairing window.
ALTER TABLE setup_codes ADD COLUMN scopes TEXT;
ALTER TABLE setup_codes ADD COLUMN expires_ms INTEGER;
