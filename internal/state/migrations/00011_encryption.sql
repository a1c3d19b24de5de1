-- The master keys that encrypt secrets in this database: which there are, not
-- what they are. The one with the highest number is current. wrapped is the key
-- as a key management service encrypted it, NULL for a key that servers have
-- from a file or their environment. retired_at is when the last value was
-- encrypted anew with another key. complete tells that no value is left that is
-- in clear or encrypted with another key.

-- +goose Up
CREATE TABLE encryption_keys (
    number     BIGINT PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    source     TEXT NOT NULL,
    wrapped    BYTEA,
    made_at    BIGINT NOT NULL,
    retired_at BIGINT NOT NULL,
    complete   BOOLEAN NOT NULL
);

-- +goose Down
DROP TABLE encryption_keys;
