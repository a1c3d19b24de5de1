package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"runtime"
	"sync"
	"time"
)

// A try is a password that somebody gave for an account.
type try struct {
	account  string // its id, also where there is no such user
	from     source
	known    bool   // there is such a user, with a password
	hash     string // of the user's password, or a decoy
	password string
}

// A verdict is what came of a try.
type verdict struct {
	good  bool
	fresh bool          // the password was compared now, not remembered
	wait  time.Duration // the try was put off for so long; > 0: nothing was compared
	slow  slowed        // what this try began to slow down
}

// slowed says what is slowed down from now on.
type slowed struct{ pair, account, address bool }

// guesses compares passwords with hashes, which is slow on purpose: what fitted
// is remembered, only so many are compared at once, and who guesses has to wait.
type guesses struct {
	key   []byte // of this process: what is remembered is worth nothing elsewhere
	turns chan struct{}
	now   func() time.Time

	mu       sync.Mutex
	good     *remembered
	bad      *remembered // the same guess again tells nothing new, and is not counted
	running  map[pairMark]chan struct{}
	throttle *throttle
}

const (
	maxGood = 4096
	maxBad  = 1024
)

func newGuesses() *guesses {
	return &guesses{
		key: random(32), turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), now: time.Now,
		good: newRemembered(maxGood), bad: newRemembered(maxBad), running: map[pairMark]chan struct{}{}, throttle: newThrottle(),
	}
}

// pairMark stands for an account, its hash and a password.
type pairMark [sha256.Size]byte

func (g *guesses) mark(t try) pairMark {
	mac := hmac.New(sha256.New, g.key)
	for _, s := range []string{t.account, t.hash, t.password} {
		mac.Write([]byte(s))
		mac.Write([]byte{0})
	}
	return pairMark(mac.Sum(nil))
}

// judge finds out whether a password is the account's. Tries of the same password
// at the same time are one.
func (g *guesses) judge(ctx context.Context, t try) (verdict, error) {
	m := g.mark(t)
	k := accountFrom{t.account, t.from}
	for {
		v, running, known := g.begin(m, k)
		if known {
			return v, nil
		}
		if running == nil {
			return g.compare(ctx, t, m, k)
		}
		select {
		case <-running:
		case <-ctx.Done():
			return verdict{}, ctx.Err()
		}
	}
}

// begin returns what is known about a try already, or the end of the same one
// that is running; with neither, the caller compares.
func (g *guesses) begin(m pairMark, k accountFrom) (v verdict, running chan struct{}, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if g.good.has(m) {
		if _, familiar := g.throttle.logins[k]; !familiar {
			g.throttle.Succeeded(k, now)
		}
		return verdict{good: true}, nil, true
	}
	if g.bad.has(m) {
		return verdict{}, nil, true
	}
	if w := g.throttle.Wait(k, now); w > 0 {
		return verdict{wait: w}, nil, true
	}
	if running := g.running[m]; running != nil {
		return verdict{}, running, false
	}
	g.running[m] = make(chan struct{})
	return verdict{}, nil, false
}

func (g *guesses) compare(ctx context.Context, t try, m pairMark, k accountFrom) (v verdict, err error) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.running[m])
		delete(g.running, m)
	}()
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	}
	g.mu.Lock()
	v.wait = g.throttle.Wait(k, g.now()) // others may have guessed meanwhile
	if v.wait == 0 {
		v.slow.pair = g.throttle.Begin(k, g.now())
	}
	g.mu.Unlock()
	if v.wait > 0 {
		return v, nil
	}
	v.good = fits(t.hash, t.password) && t.known
	v.fresh = true
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.good {
		v.slow.pair = false
		g.good.add(m)
		g.throttle.Succeeded(k, g.now())
		return v, nil
	}
	g.bad.add(m)
	v.slow.account, v.slow.address = g.throttle.Failed(k, g.now())
	return v, nil
}

// familiar notes that an account's owner is at an address.
func (g *guesses) familiar(account string, from source) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.throttle.logins[accountFrom{account, from}]; !known {
		g.throttle.Succeeded(accountFrom{account, from}, g.now())
	}
}

// remembered is a set of the last marks that were added.
type remembered struct {
	size  int
	set   map[pairMark]bool
	order []pairMark
	next  int // of order, the oldest once it is full
}

func newRemembered(size int) *remembered {
	return &remembered{size: size, set: map[pairMark]bool{}}
}

func (r *remembered) has(m pairMark) bool { return r.set[m] }

func (r *remembered) add(m pairMark) {
	if r.set[m] {
		return
	}
	if len(r.order) < r.size {
		r.order = append(r.order, m)
	} else {
		delete(r.set, r.order[r.next])
		r.order[r.next] = m
		r.next = (r.next + 1) % r.size
	}
	r.set[m] = true
}
