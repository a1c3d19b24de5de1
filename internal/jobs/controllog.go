package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/shelf"
)

// controlLog is what the controller of a job tells about its work: lines in a
// log that is kept. It is the output of launches and of giving clusters back,
// too.
type controlLog struct {
	kept shelf.Logs
	name string
	grew func()

	mu   sync.Mutex
	spin string
	part []byte // of a line that has not ended
}

func newControlLog(kept shelf.Logs, name string, grew func()) *controlLog {
	return &controlLog{kept: kept, name: name, grew: grew}
}

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
func (l *controlLog) Printf(format string, a ...any) { l.Print(fmt.Sprintf(format, a...)) }

// Print appends lines with the time, at once: each write makes a row in a database.
func (l *controlLog) Print(lines ...string) {
	if len(lines) == 0 {
		return
	}
	var b []byte
	at := time.Now().UTC().Format("2006-01-02 15:04:05")
	for _, line := range lines {
		b = fmt.Appendf(b, "[%s] %s\n", at, line)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.put(b)
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

// put appends to the log, which is not kept open: most jobs only wait. The server
// that had the job before may still have been writing to it.
func (l *controlLog) put(b []byte) error {
	defer l.grew()
	for {
		a, err := l.kept.Append(l.name)
		if err != nil {
			return err
		}
		n, err := a.Write(b)
		err = errors.Join(err, a.Close())
		if b = b[n:]; !errors.Is(err, shelf.ErrTaken) {
			return err
		}
	}
}
