-- What a cluster belongs to besides its user: a kind, such as job, and its id. Both
-- are empty for a user's own cluster. So far only managed jobs held clusters; which
-- one is what their attempts say.

-- +goose Up
ALTER TABLE clusters ADD COLUMN holder_kind TEXT NOT NULL DEFAULT '';
ALTER TABLE clusters ADD COLUMN holder_id TEXT NOT NULL DEFAULT '';
UPDATE clusters SET holder_kind = 'job', holder_id = COALESCE(
    (SELECT CAST(MAX(a.job_id) AS TEXT) FROM managed_attempts a WHERE a.cluster_name = clusters.name), '')
WHERE is_managed;
ALTER TABLE clusters DROP COLUMN is_managed;
CREATE INDEX clusters_by_holder ON clusters (holder_kind, holder_id) WHERE holder_kind <> '';

-- +goose Down
DROP INDEX clusters_by_holder;
ALTER TABLE clusters ADD COLUMN is_managed BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE clusters SET is_managed = TRUE WHERE holder_kind <> '';
UPDATE clusters SET metadata = CASE
    WHEN metadata IN ('{}', 'null') THEN '{"managed_job":"' || holder_id || '"}'
    ELSE '{"managed_job":"' || holder_id || '",' || substr(metadata, 2) END
WHERE holder_kind = 'job';
ALTER TABLE clusters DROP COLUMN holder_id;
ALTER TABLE clusters DROP COLUMN holder_kind;
