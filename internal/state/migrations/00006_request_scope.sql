-- Where a request belongs, and what its caller may touch.

-- +goose Up
ALTER TABLE requests ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE requests ADD COLUMN scope BYTEA;

-- +goose Down
ALTER TABLE requests DROP COLUMN scope;
ALTER TABLE requests DROP COLUMN workspace;
