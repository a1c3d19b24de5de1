-- What attempts teach: how long each step took, what a refusal ruled out, and
-- which credentials were refused.

-- +goose Up
ALTER TABLE attempts ADD COLUMN steps TEXT NOT NULL DEFAULT 'null';
ALTER TABLE attempts ADD COLUMN ruled_out TEXT NOT NULL DEFAULT 'null';
ALTER TABLE attempts ADD COLUMN credentials TEXT NOT NULL DEFAULT '';
CREATE INDEX attempts_by_time ON attempts (started_at);

-- +goose Down
DROP INDEX attempts_by_time;
ALTER TABLE attempts DROP COLUMN credentials;
ALTER TABLE attempts DROP COLUMN ruled_out;
ALTER TABLE attempts DROP COLUMN steps;
