//go:build unix

package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/envelope"
)

// record is what the queue keeps of a job.
type record struct {
	Job    agentapi.Job `json:"job"`
	Boot   string       `json:"boot"`             // in which it was submitted
	Rev    int64        `json:"rev"`              // grows with every change
	Places []place      `json:"places,omitempty"` // where its ranks are or are made ready, by rank; empty: it waits
	// Settled: its processes are gone and its log is complete. Nothing is left
	// to do, and its spec (with the secrets) is forgotten.
	Settled bool `json:"settled,omitempty"`
	// Reported: how it ended is stored by whoever asked for that.
	Reported bool `json:"reported,omitempty"`
	// EndNoted: the end of a cancelled job is when its processes were gone.
	EndNoted bool `json:"end_noted,omitempty"`
	// Grace is how long its processes have between TERM and KILL; 0: as usual.
	Grace time.Duration `json:"grace,omitempty"`
}

// place is where one rank of a job runs.
type place struct {
	Node  string `json:"node"`           // agentapi.Node.ID
	Index int    `json:"index"`          // of the node in the cluster when the job started
	IP    string `json:"ip"`             //
	GPUs  []int  `json:"gpus,omitempty"` // reserved devices
}

// Buckets of the queue's file. Keys are never deleted: the same key gives the
// same job for ever.
var (
	bucketMeta  = []byte("meta")
	bucketJobs  = []byte("jobs")  // id -> record
	bucketSpecs = []byte("specs") // id -> agentapi.JobSpec, until settled
	bucketKeys  = []byte("keys")  // key -> id
	bucketOpen  = []byte("open")  // id -> nothing, until settled
)

// errEnded says that a job cannot move as asked, usually because it has ended.
var errEnded = errors.New("the job is not in a state for this")

// errNoJob says that there is no such job.
var errNoJob = errors.New("no such job")

// queue is the durable part of the head. What a method has returned survives a
// crash of the agent and of the machine.
type queue struct {
	db   *bbolt.DB
	keys jobKeys
}

func openQueue(dir string) (*queue, error) {
	db, err := bbolt.Open(filepath.Join(dir, "jobs.db"), 0o600, &bbolt.Options{
		Timeout:        5 * time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the job queue: %w", err)
	}
	// Callers that arrive together share one write to the disk.
	db.MaxBatchDelay = time.Millisecond
	q := &queue{db, jobKeys(filepath.Join(dir, "job-keys"))}
	if err := db.Update(func(tx *bbolt.Tx) error { return makeBuckets(tx) }); err != nil {
		return q, err
	}
	return q, q.keys.sweep(db)
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, b := range [][]byte{bucketMeta, bucketJobs, bucketSpecs, bucketKeys, bucketOpen} {
		if _, err := tx.CreateBucketIfNotExists(b); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) close() error { return q.db.Close() }

// reset forgets all jobs: the agent now belongs to another cluster.
func (q *queue) reset() error {
	err := q.db.Update(func(tx *bbolt.Tx) error {
		for _, b := range [][]byte{bucketJobs, bucketSpecs, bucketKeys, bucketOpen} {
			if err := tx.DeleteBucket(b); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
				return err
			}
		}
		return makeBuckets(tx)
	})
	if err != nil {
		return err
	}
	return q.keys.sweep(q.db)
}

func idKey(id int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// submit stores a job under key and returns it; fresh is false if the key was
// known. finish completes the record once its id is certain.
func (q *queue) submit(key string, spec *agentapi.JobSpec, finish func(*record)) (rec *record, fresh bool, err error) {
	specData, keyID, err := q.keys.seal(spec)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil || !fresh { // it was queued before, or is not
			_ = q.keys.forget(keyID)
		}
	}()
	err = q.db.Batch(func(tx *bbolt.Tx) error {
		keys, jobs := tx.Bucket(bucketKeys), tx.Bucket(bucketJobs)
		if id := keys.Get([]byte(key)); id != nil {
			rec, fresh, err = &record{}, false, nil
			return json.Unmarshal(jobs.Get(id), rec)
		}
		n, err := jobs.NextSequence()
		if err != nil {
			return err
		}
		id := idKey(int(n))
		rec, fresh = &record{Rev: 1}, true
		rec.Job.ID, rec.Job.Key = int(n), key
		finish(rec)
		data, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		return errors.Join(
			jobs.Put(id, data),
			keys.Put([]byte(key), id),
			tx.Bucket(bucketSpecs).Put(id, specData),
			tx.Bucket(bucketOpen).Put(id, nil),
		)
	})
	return rec, fresh, err
}

// update changes a job: f sees the stored record, and its error leaves it as it
// is. f may be called more than once.
func (q *queue) update(id int, f func(*record) error) (*record, error) {
	var rec *record
	var done envelope.ID // the key that goes
	err := q.db.Batch(func(tx *bbolt.Tx) error {
		jobs, key := tx.Bucket(bucketJobs), idKey(id)
		data := jobs.Get(key)
		if data == nil {
			return errNoJob
		}
		rec = &record{}
		if err := json.Unmarshal(data, rec); err != nil {
			return err
		}
		if err := f(rec); err != nil {
			return err
		}
		rec.Rev++
		data, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		if rec.Settled {
			done = envelope.KeyOf(tx.Bucket(bucketSpecs).Get(key))
			if err := errors.Join(tx.Bucket(bucketSpecs).Delete(key), tx.Bucket(bucketOpen).Delete(key)); err != nil {
				return err
			}
		}
		return jobs.Put(key, data)
	})
	if err == nil {
		_ = q.keys.forget(done) // else the next start does it
	}
	return rec, err
}

// move applies a life cycle event to rec; errEnded if it cannot happen.
func (rec *record) move(e jobEvent, now time.Time) error {
	next, ok := moves.Next(rec.Job.Status, e)
	if !ok {
		return errEnded
	}
	rec.Job.Status, rec.Job.Silent = next, ""
	switch {
	case next == api.JobRunning:
		rec.Job.StartedAt = seconds(now)
		rec.Job.Reason = ""
	case next.Terminal():
		rec.Job.EndedAt = seconds(now)
	}
	return nil
}

func (q *queue) get(id int) (rec *record, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		key := idKey(id)
		if id == 0 {
			key, _ = tx.Bucket(bucketJobs).Cursor().Last()
		}
		data := tx.Bucket(bucketJobs).Get(key)
		if key == nil || data == nil {
			return errNoJob
		}
		rec = &record{}
		return json.Unmarshal(data, rec)
	})
	return rec, err
}

func (q *queue) byKey(key string) (rec *record, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		id := tx.Bucket(bucketKeys).Get([]byte(key))
		if id == nil {
			return errNoJob
		}
		rec = &record{}
		return json.Unmarshal(tx.Bucket(bucketJobs).Get(id), rec)
	})
	return rec, err
}

func (q *queue) spec(id int) (spec *agentapi.JobSpec, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		data := tx.Bucket(bucketSpecs).Get(idKey(id))
		if data == nil {
			return errNoJob
		}
		spec, err = q.keys.open(data)
		return err
	})
	return spec, err
}

// each calls f with every job, newest first.
func (q *queue) each(f func(*record) error) error {
	return q.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketJobs).Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			rec := &record{}
			if err := json.Unmarshal(v, rec); err != nil {
				return err
			}
			if err := f(rec); err != nil {
				return err
			}
		}
		return nil
	})
}

// open returns the jobs that are not settled, oldest first.
func (q *queue) open() (recs []*record, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		jobs := tx.Bucket(bucketJobs)
		return tx.Bucket(bucketOpen).ForEach(func(k, _ []byte) error {
			rec := &record{}
			recs = append(recs, rec)
			return json.Unmarshal(jobs.Get(k), rec)
		})
	})
	return recs, err
}

// put stores a value that is not a job, such as the cluster's spec.
func (q *queue) put(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return q.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put([]byte(name), data) })
}

// load reads what put stored; false if there is nothing.
func (q *queue) load(name string, v any) (ok bool, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		data := tx.Bucket(bucketMeta).Get([]byte(name))
		if data == nil {
			return nil
		}
		ok = true
		return json.Unmarshal(data, v)
	})
	return ok, err
}

// noSpace reports whether err means that the disk, or the user's share of it,
// is full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		err != nil && strings.Contains(err.Error(), "no space left on device")
}
