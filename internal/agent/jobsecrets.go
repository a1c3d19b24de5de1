//go:build unix

package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/envelope"
)

// The queue's file keeps what was deleted from it until the room is needed. So
// the spec of a job with secrets is encrypted there with a key of its own, which
// is in a file beside it and goes when the job is settled.

// jobKeys is the folder with the keys of jobs that are not settled.
type jobKeys string

func (d jobKeys) file(id envelope.ID) string { return filepath.Join(string(d), string(id)) }

// specPlace is where specs stand. Their keys are for one job each, so that no
// more is needed to tell them apart.
var specPlace = envelope.Place{Table: "specs"}

// seal is a spec as the queue keeps it, and the id of its key: "" for one without
// secrets. The key is on the disk before the spec is.
func (d jobKeys) seal(spec *agentapi.JobSpec) ([]byte, envelope.ID, error) {
	data, err := json.Marshal(spec)
	if err != nil || len(spec.Secrets) == 0 {
		return data, "", err
	}
	k := envelope.NewKey()
	if err := envelope.WriteFile(d.file(k.ID()), []envelope.Key{k}); err != nil {
		return nil, "", err
	}
	return envelope.NewRing(k).Seal(data, specPlace), k.ID(), nil
}

// open is the spec that the queue keeps as data.
func (d jobKeys) open(data []byte) (*agentapi.JobSpec, error) {
	if envelope.Sealed(data) {
		keys, err := envelope.ReadFile(d.file(envelope.KeyOf(data)), false)
		if err != nil {
			return nil, err
		}
		if data, err = envelope.NewRing(keys[0]).Open(data, specPlace); err != nil {
			return nil, err
		}
	}
	spec := &agentapi.JobSpec{}
	return spec, json.Unmarshal(data, spec)
}

// forget makes a spec unreadable for good.
func (d jobKeys) forget(id envelope.ID) error {
	if id == "" {
		return nil
	}
	err := os.Remove(d.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweep removes keys that no job needs: a crash left them.
func (d jobKeys) sweep(db *bbolt.DB) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketSpecs).ForEach(func(_, data []byte) error {
			needed[string(envelope.KeyOf(data))] = true
			return nil
		})
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !needed[e.Name()] {
			errs = append(errs, os.Remove(filepath.Join(string(d), e.Name())))
		}
	}
	return errors.Join(errs...)
}
