-- Both SQLite and PostgreSQL run this file. Times are Unix nanoseconds, 0 for
-- none; nested values are JSON text.

-- +goose Up
CREATE TABLE clusters (
    name              TEXT PRIMARY KEY,
    hash              TEXT NOT NULL UNIQUE,
    name_on_cloud     TEXT NOT NULL,
    status            TEXT NOT NULL,
    epoch             BIGINT NOT NULL,
    version           BIGINT NOT NULL,
    user_hash         TEXT NOT NULL,
    user_name         TEXT NOT NULL,
    workspace         TEXT NOT NULL,
    owner             TEXT NOT NULL,
    launched_at       BIGINT NOT NULL,
    status_updated_at BIGINT NOT NULL,
    ever_up           BOOLEAN NOT NULL,
    offer             TEXT NOT NULL,
    num_nodes         BIGINT NOT NULL,
    requested         TEXT NOT NULL,
    ports             TEXT NOT NULL,
    labels            TEXT NOT NULL,
    disk_gb           BIGINT NOT NULL,
    nodes             TEXT NOT NULL,
    certs             BYTEA,
    agent_build       TEXT NOT NULL,
    setup_done        BOOLEAN NOT NULL,
    autostop_minutes  BIGINT NOT NULL,
    autostop_down     BOOLEAN NOT NULL,
    autostop_wait_for TEXT NOT NULL,
    last_use          TEXT NOT NULL,
    creation_yaml     TEXT NOT NULL,
    creation_cmd      TEXT NOT NULL,
    config_hash       TEXT NOT NULL,
    is_managed        BOOLEAN NOT NULL,
    metadata          TEXT NOT NULL
);
CREATE INDEX clusters_by_launch ON clusters (launched_at DESC, name);

CREATE TABLE cluster_events (
    cluster_hash TEXT NOT NULL,
    cluster_name TEXT NOT NULL,
    type         TEXT NOT NULL,
    reason       TEXT NOT NULL,
    starting     TEXT NOT NULL,
    ending       TEXT NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (cluster_hash, reason, at)
);
CREATE INDEX cluster_events_by_time ON cluster_events (cluster_hash, at);
CREATE INDEX cluster_events_by_name ON cluster_events (cluster_name, at);
CREATE INDEX cluster_events_by_age ON cluster_events (type, at);

CREATE TABLE cluster_history (
    hash        TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    num_nodes   BIGINT NOT NULL,
    offer       TEXT NOT NULL,
    requested   TEXT NOT NULL,
    user_hash   TEXT NOT NULL,
    user_name   TEXT NOT NULL,
    workspace   TEXT NOT NULL,
    last_use    TEXT NOT NULL,
    launched_at BIGINT NOT NULL
);

CREATE TABLE cluster_usage (
    hash       TEXT NOT NULL REFERENCES cluster_history (hash) ON DELETE CASCADE,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    PRIMARY KEY (hash, started_at)
);
CREATE UNIQUE INDEX cluster_usage_one_open ON cluster_usage (hash) WHERE ended_at = 0;
CREATE INDEX cluster_usage_by_end ON cluster_usage (ended_at);

CREATE TABLE attempts (
    token         TEXT PRIMARY KEY,
    cluster_hash  TEXT NOT NULL,
    cluster_name  TEXT NOT NULL,
    name_on_cloud TEXT NOT NULL,
    offer         TEXT NOT NULL,
    nodes         BIGINT NOT NULL,
    started_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL,
    outcome       TEXT NOT NULL,
    message       TEXT NOT NULL
);
CREATE INDEX attempts_by_cluster ON attempts (cluster_hash, started_at);
CREATE INDEX attempts_open ON attempts (started_at) WHERE outcome = '';

CREATE TABLE requests (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    status       TEXT NOT NULL,
    schedule     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    user_name    TEXT NOT NULL,
    cluster_name TEXT NOT NULL,
    body         BYTEA,
    return_value BYTEA,
    error        BYTEA,
    status_msg   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    started_at   BIGINT NOT NULL,
    finished_at  BIGINT NOT NULL,
    client_api   BIGINT NOT NULL,
    cancel_asked BOOLEAN NOT NULL,
    attempt      BIGINT NOT NULL,
    state        BYTEA,
    owner_id     TEXT NOT NULL,
    heartbeat    BIGINT NOT NULL
);
CREATE INDEX requests_by_creation ON requests (created_at DESC, id DESC);
CREATE INDEX requests_active ON requests (created_at DESC, id DESC) WHERE status IN ('PENDING', 'RUNNING');
CREATE INDEX requests_by_cluster ON requests (cluster_name, created_at);
CREATE INDEX requests_by_finish ON requests (finished_at) WHERE finished_at > 0;

CREATE TABLE users (
    id                  TEXT PRIMARY KEY,
    name                TEXT NOT NULL,
    type                TEXT NOT NULL,
    role                TEXT NOT NULL,
    preferred_workspace TEXT NOT NULL,
    created_at          BIGINT NOT NULL
);

CREATE TABLE leases (
    name    TEXT PRIMARY KEY,
    owner   TEXT NOT NULL,
    epoch   BIGINT NOT NULL,
    expires BIGINT NOT NULL
);

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value BYTEA
);

-- +goose Down
DROP TABLE settings;
DROP TABLE leases;
DROP TABLE users;
DROP TABLE requests;
DROP TABLE attempts;
DROP TABLE cluster_usage;
DROP TABLE cluster_history;
DROP TABLE cluster_events;
DROP TABLE clusters;
