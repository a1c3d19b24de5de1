-- How the job of an attempt ended, as its agent told: written once, when it is heard,
-- whoever works on the job. JSON; null: nothing was heard of its end.

-- +goose Up
ALTER TABLE managed_attempts ADD COLUMN report TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE managed_attempts DROP COLUMN report;
