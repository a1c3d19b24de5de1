-- Managed jobs. A job is one thing with its tasks and their attempts: whatever
-- changes one of them moves the job's version on.

-- +goose Up
CREATE TABLE managed_jobs (
    id             BIGINT PRIMARY KEY,
    request_id     TEXT NOT NULL UNIQUE,
    version        BIGINT NOT NULL,
    epoch          BIGINT NOT NULL,
    name           TEXT NOT NULL,
    user_hash      TEXT NOT NULL,
    user_name      TEXT NOT NULL,
    workspace      TEXT NOT NULL,
    priority       BIGINT NOT NULL,
    priority_class TEXT NOT NULL,
    entrypoint     TEXT NOT NULL,
    dag            BYTEA,
    config         BYTEA,
    user_yaml      TEXT NOT NULL,
    files          TEXT NOT NULL,
    schedule       TEXT NOT NULL,
    cancel_asked   BOOLEAN NOT NULL,
    submitted_at   BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL
);
CREATE INDEX managed_jobs_waiting ON managed_jobs (priority DESC, id) WHERE schedule = 'WAITING';
CREATE INDEX managed_jobs_live ON managed_jobs (id) WHERE schedule <> 'DONE';
CREATE INDEX managed_jobs_by_name ON managed_jobs (name, id);
CREATE INDEX managed_jobs_by_user ON managed_jobs (user_hash, id);

CREATE TABLE managed_tasks (
    job_id            BIGINT NOT NULL,
    task              BIGINT NOT NULL,
    name              TEXT NOT NULL,
    status            TEXT NOT NULL,
    resources         TEXT NOT NULL,
    user_yaml         TEXT NOT NULL,
    metadata          TEXT NOT NULL,
    attempt           BIGINT NOT NULL,
    tries             BIGINT NOT NULL,
    not_before        BIGINT NOT NULL,
    restarts          BIGINT NOT NULL,
    recoveries        BIGINT NOT NULL,
    submitted_at      BIGINT NOT NULL,
    started_at        BIGINT NOT NULL,
    ended_at          BIGINT NOT NULL,
    last_recovered_at BIGINT NOT NULL,
    ran_for           BIGINT NOT NULL,
    details           TEXT NOT NULL,
    failure           TEXT NOT NULL,
    PRIMARY KEY (job_id, task)
);
CREATE INDEX managed_tasks_live ON managed_tasks (status, job_id) WHERE ended_at = 0;

CREATE TABLE managed_attempts (
    job_id          BIGINT NOT NULL,
    task            BIGINT NOT NULL,
    attempt         BIGINT NOT NULL,
    cluster_name    TEXT NOT NULL,
    cluster_hash    TEXT NOT NULL,
    cluster_job     BIGINT NOT NULL,
    offer           TEXT NOT NULL,
    nodes           BIGINT NOT NULL,
    node_names      TEXT NOT NULL,
    resources       TEXT NOT NULL,
    resources_full  TEXT NOT NULL,
    progress        BYTEA,
    started_at      BIGINT NOT NULL,
    ran_at          BIGINT NOT NULL,
    ended_at        BIGINT NOT NULL,
    outcome         TEXT NOT NULL,
    reason          TEXT NOT NULL,
    exit_codes      TEXT NOT NULL,
    log_kept        BOOLEAN NOT NULL,
    closed_at       BIGINT NOT NULL,
    PRIMARY KEY (job_id, task, attempt)
);

CREATE TABLE managed_events (
    job_id BIGINT NOT NULL,
    seq    BIGINT NOT NULL,
    task   BIGINT NOT NULL,
    status TEXT NOT NULL,
    code   TEXT NOT NULL,
    reason TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (job_id, seq)
);

-- +goose Down
DROP TABLE managed_events;
DROP TABLE managed_attempts;
DROP TABLE managed_tasks;
DROP TABLE managed_jobs;
