-- Until when a cancelled managed job may end by itself; 0: it is ended at once.

-- +goose Up
ALTER TABLE managed_jobs ADD COLUMN cancel_by BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE managed_jobs DROP COLUMN cancel_by;
