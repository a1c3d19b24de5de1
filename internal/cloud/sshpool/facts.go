package sshpool

import (
	"sync"
	"time"
)

// How long it counts what a machine has, and that it did not answer.
const (
	factsLast  = 10 * time.Minute
	silentLast = 30 * time.Second
)

// facts remember what machines have, so that planning need not ask each time.
type facts struct {
	mu    sync.Mutex
	known map[string]fact
}

type fact struct {
	size   size
	silent bool
	at     time.Time
}

func (f *facts) get(h *host) (size, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.known[h.key()]
	return k.size, ok && !k.silent && time.Since(k.at) < factsLast
}

// silent reports whether the machine did not answer just now.
func (f *facts) silent(h *host) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.known[h.key()]
	return ok && k.silent && time.Since(k.at) < silentLast
}

func (f *facts) put(h *host, s size) { f.set(h, fact{size: s, at: time.Now()}) }
func (f *facts) noAnswer(h *host)    { f.set(h, fact{silent: true, at: time.Now()}) }

func (f *facts) set(h *host, k fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = map[string]fact{}
	}
	f.known[h.key()] = k
}

// key tells machines apart, and one that is logged in to in another way.
func (h *host) key() string {
	return h.pool + "|" + h.name + "|" + h.reach.User + "|" + h.reach.HostAlias + "|" + h.reach.IdentityFile
}
