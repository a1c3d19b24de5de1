//go:build linux

package cached

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// A state is what is to be done about a path.
type state uint8

const (
	clean   state = iota // the cache holds content of the object
	dirty                // the object is to be made of the cache
	deleted              // the object is to be deleted
)

// A record is what the journal knows of a path.
type record struct {
	State state    `json:"state"`
	Type  vfs.Type `json:"type,omitempty"`
	// Data names the file of the content; "": none.
	Data   string      `json:"data,omitempty"`
	Size   int64       `json:"size,omitempty"`
	Perm   fs.FileMode `json:"perm,omitempty"`
	MTime  time.Time   `json:"mtime,omitzero"`
	Target string      `json:"target,omitempty"`
	// Base is the object that the content derives from.
	Base base `json:"base,omitzero"`
	// Attempts are the ids under which this content may have been written already.
	Attempts []string `json:"attempts,omitempty"`
	Owners   []string `json:"owners,omitempty"`
	// After is a path that is uploaded before this one is deleted.
	After string `json:"after,omitempty"`
	// Present are the blocks of clean content that are in the cache.
	Present []byte `json:"present,omitempty"`
	// Boot is when this was noted: a machine that lost its power may have lost content that
	// no close or sync has returned for.
	Boot string `json:"boot,omitempty"`
}

// A base is an object as it was when it was last looked at.
type base struct {
	Known    bool              `json:"known,omitempty"` // false: whatever is there is replaced
	Exists   bool              `json:"exists,omitempty"`
	ETag     string            `json:"etag,omitempty"`
	Size     int64             `json:"size,omitempty"`
	Modified time.Time         `json:"modified,omitzero"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func baseOf(o storage.Object) base {
	return base{Known: true, Exists: true, ETag: o.ETag, Size: o.Size, Modified: o.Modified, Metadata: o.Metadata}
}

var absent = base{Known: true}

// A journal holds the records of a cache. What put has returned is on the disk.
type journal struct {
	db   *bbolt.DB
	step func(name string, f func() error) error
}

var bucketName = []byte("files")

// errCacheInUse means that another process has the cache.
var errCacheInUse = errors.New("another process uses this cache")

func openJournal(dir string, step func(string, func() error) error) (*journal, error) {
	db, err := bbolt.Open(filepath.Join(dir, "journal"), 0o600, &bbolt.Options{Timeout: 5 * time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, errCacheInUse
	}
	if err != nil {
		return nil, fmt.Errorf("the journal of the cache: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketName)
		return err
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	return &journal{db, step}, nil
}

// load reads all records.
func (j *journal) load() (map[string]record, error) {
	out := map[string]record{}
	err := j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketName).ForEach(func(k, v []byte) error {
			var r record
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("the journal's record of %q: %w", k, err)
			}
			out[string(k)] = r
			return nil
		})
	})
	return out, err
}

// put writes records, all or none; nil removes one.
func (j *journal) put(changes map[string]*record) error {
	if len(changes) == 0 {
		return nil
	}
	return j.step("journal", func() error {
		return j.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketName)
			for path, r := range changes {
				if r == nil {
					if err := b.Delete([]byte(path)); err != nil {
						return err
					}
					continue
				}
				data, err := json.Marshal(r)
				if err != nil {
					return err
				}
				if err := b.Put([]byte(path), data); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func (j *journal) close() error { return j.db.Close() }

// syncDir makes the names in a folder last.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Unstored lists the paths of a cache that the bucket does not have as they are, of some
// owners; "" is what has none, and nil are all. Nobody may have the cache open.
func Unstored(dir string, mine func(owner string) bool) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, "journal")); err != nil {
		return nil, err
	}
	j, err := openJournal(dir, func(_ string, f func() error) error { return f() })
	if err != nil {
		return nil, err
	}
	defer j.close()
	records, err := j.load()
	if err != nil {
		return nil, err
	}
	var out []string
	for path, r := range records {
		if r.State == clean {
			continue
		}
		if mine == nil || len(r.Owners) == 0 && mine("") || slices.ContainsFunc(r.Owners, mine) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out, nil
}
