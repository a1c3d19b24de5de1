-- Benchmarks: one task on several resources, each on a cluster of its own, and what
-- was read from those clusters last.

-- +goose Up
CREATE TABLE benchmarks (
    name        TEXT PRIMARY KEY,
    request_id  TEXT NOT NULL,
    version     BIGINT NOT NULL,
    user_hash   TEXT NOT NULL,
    user_name   TEXT NOT NULL,
    workspace   TEXT NOT NULL,
    task        TEXT NOT NULL,
    launched_at BIGINT NOT NULL,
    candidates  BYTEA NOT NULL
);

-- +goose Down
DROP TABLE benchmarks;
