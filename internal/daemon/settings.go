package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/config"
)

// settings is the server's configuration, read again when its file changes.
type settings struct {
	home string
	file string
	log  *slog.Logger

	mu     sync.Mutex
	now    *config.Config
	read   time.Time // when the file was changed that now came from
	absent bool
}

// loadSettings reads the configuration; a server does not start on one that is
// wrong.
func loadSettings(home string, log *slog.Logger) (*settings, error) {
	s := &settings{home: home, log: log, file: os.Getenv("SKYPILOT_GLOBAL_CONFIG")}
	if s.file == "" {
		s.file = filepath.Join(home, ".sky", "config.yaml")
	}
	s.read, s.absent = s.changed()
	c, err := config.Load(config.Options{Side: config.Server, Home: home})
	if err != nil {
		return nil, err
	}
	s.use(c)
	return s, nil
}

func (s *settings) use(c *config.Config) {
	for _, w := range c.Warnings() {
		s.log.Log(context.Background(), w.Level, w.Text)
	}
	s.now = c
}

// current is the configuration in force. A file that became wrong changes
// nothing until it is mended.
func (s *settings) current() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, absent := s.changed()
	if changed.Equal(s.read) && absent == s.absent {
		return s.now
	}
	s.read, s.absent = changed, absent
	c, err := config.Load(config.Options{Side: config.Server, Home: s.home})
	if err != nil {
		s.log.Error("the configuration is wrong; the one before stays in force", "err", err)
		return s.now
	}
	s.use(c)
	s.log.Info("configuration read again", "file", s.file)
	return s.now
}

func (s *settings) changed() (at time.Time, absent bool) {
	info, err := os.Stat(s.file)
	if err != nil {
		return time.Time{}, true
	}
	return info.ModTime(), false
}
