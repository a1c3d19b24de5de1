package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Journal is what a controller, such as that of a managed job, tells about its work:
// lines in a log that is kept. It is the output of launches and of giving clusters
// back, too.
type Journal struct {
	kept Logs
	name string
	grew func()

	mu   sync.Mutex
	spin string
	part []byte // of a line that has not ended
}

// NewJournal returns the journal of that name. grew is called after each write.
func NewJournal(kept Logs, name string, grew func()) *Journal {
	return &Journal{kept: kept, name: name, grew: grew}
}

// Write appends whole lines; the beginning of one is kept until the rest comes.
func (l *Journal) Write(p []byte) (int, error) {
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
func (l *Journal) Printf(format string, a ...any) { l.Print(fmt.Sprintf(format, a...)) }

// Print appends lines with the time, at once: each write makes a row in a database.
func (l *Journal) Print(lines ...string) {
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
func (l *Journal) Spin(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text != l.spin {
		l.spin = text
		_ = l.put(fmt.Appendf(nil, "%s …\n", text))
	}
}

// StopSpin forgets what was waited for.
func (l *Journal) StopSpin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spin = ""
}

// put appends to the log, which is not kept open: most jobs only wait. The server
// that had the job before may still have been writing to it.
func (l *Journal) put(b []byte) error {
	defer l.grew()
	for {
		a, err := l.kept.Append(l.name)
		if err != nil {
			return err
		}
		n, err := a.Write(b)
		err = errors.Join(err, a.Close())
		if b = b[n:]; !errors.Is(err, ErrTaken) {
			return err
		}
	}
}
