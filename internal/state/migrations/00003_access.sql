-- Who may call: passwords, tokens of service accounts, browser logins under
-- way; and what was called: the audit log, to which rows are only added.

-- +goose Up
ALTER TABLE users ADD COLUMN password TEXT NOT NULL DEFAULT '';

CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    account_id TEXT NOT NULL,
    creator_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX tokens_by_account ON tokens (account_id);
CREATE INDEX tokens_by_creator ON tokens (creator_id);

CREATE TABLE logins (
    challenge  TEXT PRIMARY KEY,
    token      TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE audit (
    id        TEXT PRIMARY KEY,
    at        BIGINT NOT NULL,
    user_id   TEXT NOT NULL,
    user_name TEXT NOT NULL,
    role      TEXT NOT NULL,
    login     TEXT NOT NULL,
    address   TEXT NOT NULL,
    action    TEXT NOT NULL,
    method    TEXT NOT NULL,
    path      TEXT NOT NULL,
    cluster   TEXT NOT NULL,
    command   TEXT NOT NULL,
    queued    BOOLEAN NOT NULL
);
CREATE INDEX audit_by_time ON audit (at DESC, id DESC);
CREATE INDEX audit_by_user ON audit (user_id, at);
CREATE INDEX audit_by_cluster ON audit (cluster, at);

CREATE TABLE audit_results (
    id     TEXT PRIMARY KEY,
    at     BIGINT NOT NULL,
    result TEXT NOT NULL,
    detail TEXT NOT NULL
);

-- +goose Down
DROP TABLE audit_results;
DROP TABLE audit;
DROP TABLE logins;
DROP TABLE tokens;
ALTER TABLE users DROP COLUMN password;
