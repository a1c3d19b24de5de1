package jobs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// controlLog is what the controller of a job tells about its work: lines in a
// file that is kept. It is the output of launches and of giving clusters back,
// too.
type controlLog struct {
	path string
	grew func()

	mu   sync.Mutex
	spin string
	part []byte // of a line that has not ended
}

func newControlLog(path string, grew func()) *controlLog { return &controlLog{path: path, grew: grew} }

// Write appends whole lines; the beginning of one is kept until the rest comes.
func (l *controlLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	end := bytes.LastIndexByte(l.part, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	err := l.put(l.part[:end])
	l.part = append([]byte(nil), l.part[end:]...)
	return len(p), err
}

// Printf appends a line with the time.
func (l *controlLog) Printf(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.put(fmt.Appendf(nil, "[%s] %s\n", time.Now().UTC().Format("2006-01-02 15:04:05"), fmt.Sprintf(format, a...)))
}

// Spin notes what is waited for.
func (l *controlLog) Spin(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text != l.spin {
		l.spin = text
		_ = l.put(fmt.Appendf(nil, "%s …\n", text))
	}
}

// StopSpin forgets what was waited for.
func (l *controlLog) StopSpin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spin = ""
}

// put appends to the file, which is not kept open: most jobs only wait.
func (l *controlLog) put(b []byte) error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(b)
	l.grew()
	return err
}
