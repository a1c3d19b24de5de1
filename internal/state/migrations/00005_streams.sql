-- Bytes that every server must be able to read: logs that grow, and whole files.
-- A stream is only added to; its pieces are keyed by where they begin.

-- +goose Up
CREATE TABLE stream_pieces (
    stream TEXT NOT NULL,
    at     BIGINT NOT NULL,
    data   BYTEA,
    PRIMARY KEY (stream, at)
);

CREATE TABLE blobs (
    name       TEXT PRIMARY KEY,
    stream     TEXT NOT NULL UNIQUE,
    user_id    TEXT NOT NULL,
    size       BIGINT NOT NULL,
    whole      BOOLEAN NOT NULL,
    used_at    BIGINT NOT NULL
);
CREATE INDEX blobs_by_user ON blobs (user_id);
CREATE INDEX requests_waiting ON requests (user_id) WHERE status = 'PENDING';

-- +goose Down
DROP INDEX requests_waiting;
DROP TABLE blobs;
DROP TABLE stream_pieces;
