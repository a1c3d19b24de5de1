package auth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/internal/state"
)

// Tokens, sessions and the codes of browser logins cannot be guessed; what an
// address sends of wrong ones is bounded for the load that they are.
var (
	// secretPace is for texts that this installation has not signed. Good ones are
	// never put off.
	secretPace = pace{free: 100, first: time.Second, most: time.Minute, forgive: time.Second, size: 4096}
	// lookupPace is for questions that cost a look into the database or another
	// program: a command line that waits for its login asks once a second, and many
	// may share an address.
	lookupPace = pace{free: 600, first: time.Second, most: time.Minute, forgive: time.Second / 20, size: 4096}
)

// attempts are failures by where they come from.
type attempts struct {
	mu sync.Mutex
	by *limiter[source]
}

func newAttempts(p pace) *attempts { return &attempts{by: newLimiter[source](p)} }

func (a *attempts) wait(s source, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by.Wait(s, now)
}

func (a *attempts) failed(s source, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by.Failed(s, now)
}

// address is [Gate.Address] as an address; the zero one if there is none.
func (g *Gate) address(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddr(g.Address(r))
	return a
}

// putOff refuses a try that comes too early.
func putOff(why string, wait time.Duration) *Denial {
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	unit := "seconds"
	if seconds == 1 {
		unit = "second"
	}
	return &Denial{
		Status:  http.StatusTooManyRequests,
		Message: fmt.Sprintf("%s Try again in %d %s.", why, seconds, unit),
		Header:  http.Header{"Cache-Control": {"no-store"}, "Retry-After": {strconv.Itoa(seconds)}},
	}
}

const tooManySecrets = "Too many invalid tokens or sessions from this address."

// forged refuses what this installation has not signed.
func (g *Gate) forged(r *http.Request, by string, refused *Denial) *Denial {
	s := sourceOf(g.address(r))
	if w := g.secrets.wait(s, g.now()); w > 0 {
		return putOff(tooManySecrets, w)
	}
	detail := "invalid " + by
	if g.secrets.failed(s, g.now()) {
		detail += "; the address is slowed down"
	}
	g.note(r, state.User{}, by, detail)
	return refused
}

// forgedSession counts the cookie of a session that was never one. The call goes
// on without, so that people can log in again.
func (g *Gate) forgedSession(r *http.Request) error {
	cookie, err := r.Cookie(SessionCookie)
	if err != nil || !g.o.Basic {
		return nil
	}
	if _, err := g.signer.parse(cookie.Value, kindSession, g.now()); !errors.Is(err, errSignature) {
		return nil
	}
	if d := g.forged(r, BySession, nil); d != nil {
		return d
	}
	return nil
}

// Lookup says whether an address may ask for what only few may know, such as a
// login that a command line waits for; a [*Denial] if it asked too often in vain.
// No address of this machine is refused: it may be a proxy's.
func (g *Gate) Lookup(r *http.Request) error {
	if g == nil {
		return nil
	}
	s := sourceOf(g.address(r))
	if local(s) {
		return nil
	}
	if w := g.lookups.wait(s, g.now()); w > 0 {
		return putOff("Too many requests from this address.", w)
	}
	return nil
}

// LookupFailed counts a question that was asked in vain.
func (g *Gate) LookupFailed(r *http.Request) {
	if g == nil {
		return
	}
	if s := sourceOf(g.address(r)); !local(s) && g.lookups.failed(s, g.now()) {
		g.note(r, state.User{}, "", "too many questions for logins; the address is slowed down")
	}
}

// noteGuess tells the audit log of a wrong password, once: not of the same one
// again, nor of tries that were put off.
func (g *Gate) noteGuess(r *http.Request, u state.User, v verdict) {
	if !v.fresh {
		return
	}
	detail := "wrong password"
	if u.ID == "" {
		detail = "no such user" // and no name, as people type passwords there
	}
	if v.slow.pair {
		detail += "; tries for this user from this address are slowed down"
	}
	if v.slow.account {
		detail += "; tries for this user from new addresses are slowed down"
	}
	if v.slow.address {
		detail += "; tries from this address are slowed down"
	}
	g.note(r, u, ByBasic, detail)
}

// notes bounds how much of the audit log strangers can write.
type notes struct {
	mu      sync.Mutex
	room    float64
	at      time.Time
	omitted int
}

const (
	notesAtOnce    = 200
	notesPerSecond = 1
	noteTime       = 5 * time.Second
)

func newNotes() *notes { return &notes{room: notesAtOnce} }

// take reports whether an entry may be written, and how many were not before.
func (n *notes) take(now time.Time) (omitted int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.at.IsZero() {
		n.room = min(notesAtOnce, n.room+now.Sub(n.at).Seconds()*notesPerSecond)
	}
	n.at = now
	if n.room < 1 {
		n.omitted++
		return 0, false
	}
	n.room--
	omitted, n.omitted = n.omitted, 0
	return omitted, true
}

// LoginAction is the action of the audit log's entries about failed logins.
const LoginAction = "login"

// note writes a failed login into the audit log. The refusal does not depend on
// it.
func (g *Gate) note(r *http.Request, u state.User, by, detail string) {
	omitted, ok := g.notes.take(g.now())
	if !ok {
		return
	}
	if omitted > 0 {
		detail += fmt.Sprintf(" (%d failed logins before this one were not noted)", omitted)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), noteTime)
	defer cancel()
	e := state.AuditEntry{
		ID: uuid.NewString(), UserID: u.ID, UserName: u.Name, Login: by, Address: g.Address(r), Action: LoginAction,
	}
	if g.store.Audit().Add(ctx, e) == nil {
		_ = g.store.Audit().End(ctx, e.ID, "DENIED", detail)
	}
}
