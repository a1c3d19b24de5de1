// Package installation knows which installation of sky a home folder serves, from
// a small file beside the database: a database that is lost, older than it was or
// of another installation is recognised before a server works with it, and what
// was rented is still found by the installation's id.
//
// The database is written first and the file second, always: a crash between the
// two leaves the database one generation ahead, which is in order. A database that
// is behind the file is an older copy, whatever made it one.
package installation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// Mark is what a home folder remembers of an installation's database.
type Mark struct {
	ID         string    `json:"id"`
	Generation int64     `json:"generation"` // the database has it, or had it
	At         time.Time `json:"at"`
}

// Kind is where a database is. A home folder remembers one of each, as who moves
// from one to the other may go back.
type Kind string

// The kinds of databases.
const (
	File       Kind = "file"       // SQLite, below the home folder
	PostgreSQL Kind = "postgresql" // of several servers
)

// Memory is the file of one home folder. Its methods may be called concurrently.
type Memory struct {
	path string
	mu   sync.Mutex
}

// Dir is the folder of an API server's files below a home folder.
func Dir(home string) string { return filepath.Join(home, ".sky", "api_server") }

// Path is the file below a home folder.
func Path(home string) string { return filepath.Join(Dir(home), "installation.json") }

// Database is the database file below a home folder.
func Database(home string) string { return filepath.Join(Dir(home), "sky.db") }

// Of is the memory of a home folder; the file need not exist.
func Of(home string) *Memory { return &Memory{path: Path(home)} }

// Mark is what is remembered of a database; nil: nothing.
func (m *Memory) Mark(k Kind) (*Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks, err := m.read()
	if err != nil {
		return nil, err
	}
	return marks[k], nil
}

// Note remembers a mark. It is on disk then.
func (m *Memory) Note(k Kind, mark Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks, err := m.read()
	if err != nil {
		return err
	}
	marks[k] = &mark
	b, err := json.MarshalIndent(marks, "", "  ")
	if err != nil {
		return err
	}
	if err := wholefile.WriteSynced(m.path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("noting which installation this is: %w", err)
	}
	return nil
}

func (m *Memory) read() (map[Kind]*Mark, error) {
	marks := map[Kind]*Mark{}
	b, err := os.ReadFile(m.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return marks, nil
	case err != nil:
		return nil, fmt.Errorf("reading which installation this is: %w", err)
	}
	if err := json.Unmarshal(b, &marks); err != nil {
		return nil, fmt.Errorf("the file %s, which says which installation this is, is damaged (%w). If the database beside it is the right one, remove the file and start again: rm %s", m.path, err, m.path)
	}
	for k, mark := range marks {
		if mark == nil || mark.ID == "" {
			delete(marks, k)
		}
	}
	return marks, nil
}
