-- Volumes: disks that outlive clusters, or go with one; and which clusters hold
-- which. (Version 9 is for SQLite only and is not written in SQL.)

-- +goose Up
CREATE TABLE volumes (
    name             TEXT PRIMARY KEY,
    hash             TEXT NOT NULL,
    version          BIGINT NOT NULL,
    stage            TEXT NOT NULL,
    user_hash        TEXT NOT NULL,
    user_name        TEXT NOT NULL,
    workspace        TEXT NOT NULL,
    asked            TEXT NOT NULL,
    spec             TEXT NOT NULL,
    seen             TEXT NOT NULL,
    problem          TEXT NOT NULL,
    cluster_hash     TEXT NOT NULL,
    launched_at      BIGINT NOT NULL,
    last_attached_at BIGINT NOT NULL,
    last_use         TEXT NOT NULL,
    creation_yaml    TEXT NOT NULL
);
CREATE INDEX volumes_by_cluster ON volumes (cluster_hash) WHERE cluster_hash <> '';

CREATE TABLE volume_mounts (
    cluster_hash TEXT NOT NULL,
    path         TEXT NOT NULL,
    volume       TEXT NOT NULL,
    sub_path     TEXT NOT NULL,
    PRIMARY KEY (cluster_hash, path)
);
CREATE INDEX volume_mounts_by_volume ON volume_mounts (volume);

-- +goose Down
DROP TABLE volume_mounts;
DROP TABLE volumes;
