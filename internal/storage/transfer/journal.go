package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// A journal remembers the uploads of large files that have begun, a line of JSON for
// each step. The intent is written before an upload is begun, as its id is known only
// afterwards: what a crash between the two leaves in the store is found by the key.
type journal struct {
	path string // "": nothing is remembered

	lock  *flock.Flock
	mu    sync.Mutex
	f     *os.File
	begun map[string]record
	met   map[string]bool // the keys that this transfer has to do with
}

// flush is a variable for tests, which do without.
var flush = (*os.File).Sync

// A record is an upload.
type record struct {
	Bucket string    `json:"bucket"`
	Key    string    `json:"key"`
	At     time.Time `json:"at"`
	ID     string    `json:"id,omitempty"`   // "": about to begin
	What   string    `json:"what,omitempty"` // the content: its hash, or the object it is copied from
	Size   int64     `json:"size"`
	Part   int64     `json:"part"`
	Ended  bool      `json:"ended,omitempty"`
}

func (r record) name() string { return r.Bucket + "\x00" + r.Key }

// openJournal reads what a transfer before this one has left.
func openJournal(path string) (*journal, error) {
	j := &journal{path: path, begun: map[string]record{}, met: map[string]bool{}}
	if path == "" {
		return j, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	j.lock = flock.New(path+".lock", flock.SetPermissions(0o600))
	mine, err := j.lock.TryLock()
	if err == nil && !mine {
		err = errors.New("another transfer uses it; wait for its end")
	}
	if err != nil {
		return nil, fmt.Errorf("opening the journal %s: %w", path, err)
	}
	if err := j.read(); err != nil {
		j.lock.Close()
		return nil, err
	}
	return j, nil
}

// read reads the file, and opens it to be added to.
func (j *journal) read() error {
	text, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the journal: %w", err)
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		var r record
		if json.Unmarshal(line, &r) != nil || r.Key == "" {
			continue // cut off by a crash
		}
		if delete(j.begun, r.name()); !r.Ended {
			j.begun[r.name()] = r
		}
	}
	for _, r := range j.begun {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		kept.Write(append(line, '\n'))
	}
	if err := wholefile.WriteSynced(j.path, kept.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if j.f, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	return nil
}

// close removes the journal if nothing is left to remember. Its lock stays: who removed it
// could let two have it.
func (j *journal) close() {
	if j.f == nil {
		return
	}
	j.f.Close()
	if len(j.begun) == 0 {
		os.Remove(j.path)
	}
	j.lock.Close()
}

// write adds a line; one that counts after a crash is on the disk then.
func (j *journal) write(r record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if delete(j.begun, r.name()); !r.Ended {
		j.begun[r.name()] = r
	}
	if j.f == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = j.f.Write(append(line, '\n'))
	}
	if err == nil && !r.Ended {
		err = flush(j.f)
	}
	if err != nil {
		return fmt.Errorf("writing the journal %s: %w", filepath.Base(j.path), err)
	}
	return nil
}

// find is what is remembered of a key.
func (j *journal) find(b storage.Bucket, key string) (record, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := record{Bucket: b.Location().String(), Key: key}.name()
	j.met[name] = true
	r, ok := j.begun[name]
	return r, ok
}

// left are the records of uploads that this transfer has not met, oldest first.
func (j *journal) left() []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []record
	for _, r := range j.begun {
		if !j.met[r.name()] {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b record) int { return a.At.Compare(b.At) })
	return all
}
