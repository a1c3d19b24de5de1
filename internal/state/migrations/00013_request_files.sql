-- Which files the tasks of a request may bring to nodes, as the server found when
-- it accepted the request.

-- +goose Up
ALTER TABLE requests ADD COLUMN files BYTEA;

-- +goose Down
ALTER TABLE requests DROP COLUMN files;
