package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
)

// settings is the server's configuration, read again when its file changes.
type settings struct {
	home string
	file string
	log  *slog.Logger

	editing sync.Mutex // held while the configuration is changed

	mu      sync.Mutex
	store   *state.Store // holds a part of the configuration, if servers share it; else nil
	text    []byte       // that part
	asked   time.Time    // when it was last read
	record  *record      // of workspaces; nil until there is a database
	written *config.Config
	now     *config.Config // as written, with workspaces that were removed
	who     server.Rules   // what now says about users
	read    time.Time      // when the file was changed that now came from
	absent  bool
}

// loadSettings reads the configuration; a server does not start on one that is
// wrong.
func loadSettings(home string, log *slog.Logger) (*settings, error) {
	s := &settings{home: home, log: log, file: os.Getenv("SKYPILOT_GLOBAL_CONFIG")}
	if s.file == "" {
		s.file = filepath.Join(home, ".sky", "config.yaml")
	}
	s.read, s.absent = s.changed()
	return s, s.load()
}

// load reads the configuration and puts it in force, if nothing is wrong with
// it.
func (s *settings) load() error {
	c, err := config.Load(config.Options{Side: config.Server, Home: s.home, Stored: s.stored})
	if err != nil {
		return err
	}
	if _, err := rulesOf(c); err != nil {
		return err
	}
	for _, w := range c.Warnings() {
		s.log.Log(context.Background(), w.Level, w.String())
	}
	return s.apply(c)
}

// apply puts a configuration in force.
func (s *settings) apply(c *config.Config) error {
	now := c
	if s.record != nil {
		var err error
		if now, err = s.record.keep(c); err != nil {
			s.log.Error("the workspaces were not noted in the database", "err", err)
		}
	}
	who, err := rulesOf(now)
	if err != nil {
		return err
	}
	s.written, s.now, s.who = c, now, who
	return nil
}

// current is the configuration in force. A file that became wrong changes
// nothing until it is mended.
func (s *settings) current() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.now
}

// asWritten is the configuration that is in force for new things, and that is
// shown and edited.
func (s *settings) asWritten() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.written
}

// rules is what the configuration in force says about users.
func (s *settings) rules() server.Rules {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.who
}

// look reads the configuration again if it has changed.
func (s *settings) look() {
	changed, absent := s.changed()
	if changed.Equal(s.read) && absent == s.absent && !s.asksAgain() {
		return
	}
	s.read, s.absent = changed, absent
	if err := s.load(); err != nil {
		s.log.Error("the configuration is wrong; the one before stays in force", "err", err)
		return
	}
	s.log.Info("configuration read again", "file", s.file)
}

// storedConfig is the setting in the database that holds the part of the
// configuration which is the same for all servers that share it, as YAML.
const storedConfig = "config"

// askEvery is how soon a server sees what another one changed.
const askEvery = 5 * time.Second

// inDatabase lays the configuration in a shared database over the file's, and
// keeps what is on record about workspaces in any.
func (s *settings) inDatabase(ctx context.Context, store *state.Store) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if store.Shared() {
		s.store = store
		s.asksAgain()
		if err := s.load(); err != nil {
			return err
		}
	}
	var err error
	if s.record, err = readRecord(ctx, store, s.written); err != nil {
		return err
	}
	return s.apply(s.written)
}

// asksAgain reads the part in the database if it is time, and reports whether it
// is another one now. A database that does not answer changes nothing.
func (s *settings) asksAgain() bool {
	if s.store == nil || time.Since(s.asked) < askEvery {
		return false
	}
	s.asked = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), askEvery)
	defer cancel()
	text, err := s.store.Settings().Get(ctx, storedConfig)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		s.log.Error("the configuration in the database cannot be read; the one before stays in force", "err", err)
		return false
	}
	if bytes.Equal(text, s.text) {
		return false
	}
	s.text = text
	return true
}

// stored is the part of the configuration that is in the database.
func (s *settings) stored(string) ([]byte, error) { return s.text, nil }

func (s *settings) changed() (at time.Time, absent bool) {
	info, err := os.Stat(s.file)
	if err != nil {
		return time.Time{}, true
	}
	return info.ModTime(), false
}
