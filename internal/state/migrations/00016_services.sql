-- Services, and pools of workers, which are held in the same way: what is asked for
-- (a version each time that it changes), and the replicas that there are.

-- +goose Up
CREATE TABLE services (
    name        TEXT PRIMARY KEY,
    hash        TEXT NOT NULL UNIQUE,
    request_id  TEXT NOT NULL,
    version     BIGINT NOT NULL,
    epoch       BIGINT NOT NULL DEFAULT 0,
    kind        TEXT NOT NULL,
    user_hash   TEXT NOT NULL,
    user_name   TEXT NOT NULL,
    workspace   TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    ready_at    BIGINT NOT NULL DEFAULT 0,
    port        BIGINT NOT NULL DEFAULT 0,
    latest      BIGINT NOT NULL,
    down_asked  BOOLEAN NOT NULL DEFAULT FALSE,
    purge       BOOLEAN NOT NULL DEFAULT FALSE,
    asked       TEXT NOT NULL DEFAULT '',
    status      TEXT NOT NULL,
    state       BYTEA,
    shown       TEXT NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX services_by_port ON services (port) WHERE port > 0;

CREATE TABLE service_versions (
    id          TEXT PRIMARY KEY,
    hash        TEXT NOT NULL,
    number      BIGINT NOT NULL,
    request_id  TEXT NOT NULL,
    mode        TEXT NOT NULL DEFAULT '',
    entrypoint  TEXT NOT NULL DEFAULT '',
    created_at  BIGINT NOT NULL,
    files       TEXT NOT NULL DEFAULT 'null',
    task        BYTEA,
    config      BYTEA
);
CREATE UNIQUE INDEX service_versions_by_number ON service_versions (hash, number);

CREATE TABLE service_replicas (
    hash         TEXT NOT NULL,
    id           BIGINT NOT NULL,
    state        BYTEA,
    probes       BYTEA,
    progress     BYTEA,
    cluster_name TEXT NOT NULL DEFAULT '',
    cluster_hash TEXT NOT NULL DEFAULT '',
    cluster_job  BIGINT NOT NULL DEFAULT 0,
    endpoint     TEXT NOT NULL DEFAULT '',
    asked        TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (hash, id)
);

-- +goose Down
DROP TABLE service_replicas;
DROP TABLE service_versions;
DROP TABLE services;
