-- Managed jobs that come in numbers: arrays, groups, and schedules that submit
-- them again and again.

-- +goose Up
ALTER TABLE managed_jobs ADD COLUMN parallel BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE managed_jobs ADD COLUMN array_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE managed_jobs ADD COLUMN array_rank BIGINT NOT NULL DEFAULT 0;
ALTER TABLE managed_jobs ADD COLUMN array_size BIGINT NOT NULL DEFAULT 0;
ALTER TABLE managed_jobs ADD COLUMN schedule_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE managed_tasks ADD COLUMN auxiliary BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX managed_jobs_by_array ON managed_jobs (array_id, id) WHERE array_id <> 0;
CREATE INDEX managed_jobs_by_schedule ON managed_jobs (schedule_id, id) WHERE schedule_id <> 0;

CREATE TABLE managed_schedules (
    id           BIGINT PRIMARY KEY,
    request_id   TEXT NOT NULL UNIQUE,
    version      BIGINT NOT NULL,
    name         TEXT NOT NULL,
    user_hash    TEXT NOT NULL,
    user_name    TEXT NOT NULL,
    workspace    TEXT NOT NULL,
    cron         TEXT NOT NULL,
    timezone     TEXT NOT NULL,
    missed       TEXT NOT NULL,
    overlap      TEXT NOT NULL,
    job          TEXT NOT NULL,
    files        TEXT NOT NULL,
    submitted_at BIGINT NOT NULL,
    next_at      BIGINT NOT NULL,
    last_at      BIGINT NOT NULL,
    last_job     BIGINT NOT NULL,
    runs         BIGINT NOT NULL,
    left_out     BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL
);
CREATE INDEX managed_schedules_due ON managed_schedules (next_at) WHERE ended_at = 0;

-- +goose Down
DROP TABLE managed_schedules;
DROP INDEX managed_jobs_by_schedule;
DROP INDEX managed_jobs_by_array;
ALTER TABLE managed_tasks DROP COLUMN auxiliary;
ALTER TABLE managed_jobs DROP COLUMN schedule_id;
ALTER TABLE managed_jobs DROP COLUMN array_size;
ALTER TABLE managed_jobs DROP COLUMN array_rank;
ALTER TABLE managed_jobs DROP COLUMN array_id;
ALTER TABLE managed_jobs DROP COLUMN parallel;
