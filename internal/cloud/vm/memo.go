package vm

import (
	"sync"
	"time"
)

// Memo remembers what was looked up with one set of credentials. The zero value is ready.
type Memo struct {
	// Changed is called when the credentials are others than before; nil: nothing is.
	Changed func()

	mu    sync.Mutex
	stamp string
	found map[string]memo
}

type memo struct {
	at    time.Time
	found any
}

// believed is how long a look-up counts.
const believed = 10 * time.Minute

// Remember is what was looked up less than ten minutes ago with the credentials of a stamp,
// or is looked up now.
func Remember[T any](m *Memo, stamp, what string, look func() (T, error)) (T, error) {
	m.mu.Lock()
	if stamp != m.stamp || m.found == nil {
		if m.stamp, m.found = stamp, map[string]memo{}; m.Changed != nil {
			m.Changed()
		}
	}
	have, ok := m.found[what]
	m.mu.Unlock()
	if v, fits := have.found.(T); ok && fits && time.Since(have.at) < believed {
		return v, nil
	}
	found, err := look()
	if err == nil {
		m.mu.Lock()
		if stamp == m.stamp {
			m.found[what] = memo{time.Now(), found}
		}
		m.mu.Unlock()
	}
	return found, err
}

// Forget makes the next [Remember] look again.
func (m *Memo) Forget(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.found, what)
}
