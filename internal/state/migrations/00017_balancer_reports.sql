-- What load balancers reported last to one of several servers, for the others.

-- +goose Up
CREATE TABLE balancer_reports (
    balancer TEXT PRIMARY KEY,
    server   TEXT NOT NULL,
    at       BIGINT NOT NULL,
    report   BYTEA
);

-- +goose Down
DROP TABLE balancer_reports;
