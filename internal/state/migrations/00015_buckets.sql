-- Buckets that tasks name, and who needs those that are not to outlive their users: a
-- request, a cluster (by its hash) or a managed job.

-- +goose Up
CREATE TABLE buckets (
    name        TEXT PRIMARY KEY,
    hash        TEXT NOT NULL,
    version     BIGINT NOT NULL,
    stage       TEXT NOT NULL,
    status      TEXT NOT NULL,
    user_hash   TEXT NOT NULL,
    user_name   TEXT NOT NULL,
    workspace   TEXT NOT NULL,
    store       TEXT NOT NULL,
    account     TEXT NOT NULL,
    region      TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    sub_path    TEXT NOT NULL,
    managed     BOOLEAN NOT NULL,
    persistent  BOOLEAN NOT NULL,
    config      TEXT NOT NULL,
    problem     TEXT NOT NULL,
    launched_at BIGINT NOT NULL,
    last_use    TEXT NOT NULL
);

CREATE TABLE bucket_holders (
    bucket_hash TEXT NOT NULL,
    kind        TEXT NOT NULL,
    id          TEXT NOT NULL,
    PRIMARY KEY (bucket_hash, kind, id)
);

-- +goose Down
DROP TABLE bucket_holders;
DROP TABLE buckets;
