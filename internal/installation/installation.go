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

	"github.com/skypilot-go/sky/internal/envelope"
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
	path, seen string
	mu         sync.Mutex
}

// Dir is the folder of an API server's files below a home folder.
func Dir(home string) string { return filepath.Join(home, ".sky", "api_server") }

// Path is the file below a home folder.
func Path(home string) string { return filepath.Join(Dir(home), "installation.json") }

// Database is the database file below a home folder.
func Database(home string) string { return filepath.Join(Dir(home), "sky.db") }

// seenPath is the file with the last generation that was seen: "ID GENERATION".
func seenPath(home string) string { return filepath.Join(Dir(home), "installation.seen") }

// Of is the memory of a home folder; the file need not exist.
func Of(home string) *Memory { return &Memory{path: Path(home), seen: seenPath(home)} }

// Mark is what is remembered of a database; nil: nothing.
func (m *Memory) Mark(k Kind) (*Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks, err := m.read()
	mark := marks[k]
	if err != nil || mark == nil {
		return nil, err
	}
	if id, generation := m.lastSeen(); k == File && id == mark.ID && generation > mark.Generation {
		mark.Generation = generation
	}
	return mark, nil
}

// Saw notes a generation of the database file without waiting for the disk. What
// goes wrong is no loss but of precision: Note keeps generations.
func (m *Memory) Saw(id string, generation int64) {
	f, err := os.OpenFile(m.seen, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(f, "%s %020d\n", id, generation) // always of one length
	_ = f.Close()
}

// lastSeen is what Saw noted last; "": nothing that can be read.
func (m *Memory) lastSeen() (id string, generation int64) {
	b, err := os.ReadFile(m.seen)
	if err != nil {
		return "", 0
	}
	if n, err := fmt.Sscanf(string(b), "%s %d\n", &id, &generation); n != 2 || err != nil {
		return "", 0
	}
	return id, generation
}

// Trace is a file that shows that a home folder without memory has served an
// installation; "": there is none.
func (m *Memory) Trace() string {
	if _, err := os.Lstat(m.path); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	for _, file := range []string{filepath.Join(filepath.Dir(m.path), envelope.FileName), m.seen} {
		if _, err := os.Lstat(file); err == nil {
			return file
		}
	}
	return ""
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
	err = json.Unmarshal(b, &marks)
	for k, mark := range marks {
		if err == nil && (mark == nil || mark.ID == "") {
			err = fmt.Errorf("it has no id for %q", k)
		}
	}
	if err == nil && len(marks) == 0 {
		err = errors.New("it has no id")
	}
	if err != nil {
		return nil, fmt.Errorf("the file %s, which says which installation this is, is damaged (%w). If the database beside it is the right one, remove the file and start again: rm %s", m.path, err, m.path)
	}
	return marks, nil
}
