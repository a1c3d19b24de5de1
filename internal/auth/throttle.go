package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"
)

// What wrong passwords cost. Counts are of one server, and forgotten when it ends.
var (
	// strangerPace is for an account from an address that it never logged in from,
	// familiarPace from one that it did, and from this machine, where a proxy that
	// does not tell addresses may stand for everybody.
	strangerPace = pace{free: 5, first: time.Second, most: 15 * time.Minute, forgive: 10 * time.Minute, size: 4096}
	familiarPace = pace{free: 10, first: time.Second, most: 30 * time.Second, forgive: time.Minute, size: 4096}
	// accountPace counts what strangers guess for an account, up to 44; the waits
	// that follow from it are those of [throttle.turn].
	accountPace = pace{free: 20, first: time.Second, most: 1 << 24 * time.Second, forgive: 30 * time.Second, size: 4096}
	// addressPace is for an address, and networkPace for the network of an IPv6
	// address, whatever the account.
	addressPace = pace{free: 30, first: time.Second, most: time.Minute, forgive: 10 * time.Second, size: 4096}
	networkPace = pace{free: 300, first: time.Second, most: time.Minute, forgive: time.Second, size: 4096}
)

// A source is where a try comes from: an IPv4 address, or the /64 that an IPv6
// address is in, as whoever has one address of it has all.
type source = netip.Prefix

func sourceOf(a netip.Addr) source {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of no address: the zero value
	return p
}

// networkOf is the /48 around an IPv6 source, as much as one site gets.
func networkOf(s source) (source, bool) {
	if !s.Addr().Is6() {
		return source{}, false
	}
	p, err := s.Addr().Prefix(48)
	return p, err == nil
}

type accountFrom struct {
	account string // a user's id, also of nobody
	from    source
}

// A throttle slows down who guesses passwords. Nobody can keep the owner of an
// account out from elsewhere: waits belong to an account and an address, and
// where an account as a whole is under attack, each address gets a turn of its
// own that no other can take. It is not safe for concurrent use.
type throttle struct {
	key       []byte // of this process; spreads the turns
	strangers *limiter[accountFrom]
	familiars *limiter[accountFrom]
	accounts  *limiter[string]
	addresses *limiter[source]
	networks  *limiter[source]
	logins    map[accountFrom]time.Time // the last ones
}

const maxLogins = 8192

func newThrottle() *throttle {
	return &throttle{
		key:       random(32),
		strangers: newLimiter[accountFrom](strangerPace), familiars: newLimiter[accountFrom](familiarPace),
		accounts: newLimiter[string](accountPace), addresses: newLimiter[source](addressPace), networks: newLimiter[source](networkPace),
		logins: map[accountFrom]time.Time{},
	}
}

func (t *throttle) of(k accountFrom) (l *limiter[accountFrom], familiar bool) {
	_, familiar = t.logins[k]
	if familiar || local(k.from) {
		return t.familiars, familiar
	}
	return t.strangers, false
}

// local reports whether a try comes from this machine, which says nothing about
// who sent it.
func local(s source) bool { return s.Addr().IsLoopback() }

// Wait is how long an account's next try from an address has to wait; 0: it may
// be made.
func (t *throttle) Wait(k accountFrom, now time.Time) time.Duration {
	l, familiar := t.of(k)
	w := l.Wait(k, now)
	if familiar {
		return w
	}
	w = max(w, t.turn(k, now))
	if local(k.from) {
		return w
	}
	w = max(w, t.addresses.Wait(k.from, now))
	if n, ok := networkOf(k.from); ok {
		w = max(w, t.networks.Wait(n, now))
	}
	return w
}

const (
	// turnTime is how long an address's turn is: enough to come back in it when
	// whole seconds are told.
	turnTime = 3 * time.Second
	// mostTurns is how many turns take each other's place while an account is under
	// attack. So a stranger waits for less than mostTurns * turnTime.
	mostTurns = 8
)

// turn is how long an address has to wait for its turn with an account. While
// strangers guess much, time is cut into turns, first two and in the end
// mostTurns, and each address has one of them.
func (t *throttle) turn(k accountFrom, now time.Time) time.Duration {
	over := t.accounts.Count(k.account, now) - accountPace.free
	if over < 0 {
		return 0
	}
	turns := min(mostTurns, 2<<(over/8))
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte(k.account))
	b, _ := k.from.MarshalBinary() // never fails
	mac.Write(b)
	mine := time.Duration(binary.BigEndian.Uint64(mac.Sum(nil))%uint64(turns)) * turnTime
	round := time.Duration(turns) * turnTime
	at := time.Duration(now.UnixNano()) % round
	if at >= mine && at < mine+turnTime {
		return 0
	}
	return (mine - at + round) % round
}

// Begin counts a try as failed before its outcome is known, so that tries at the
// same time count, too. It reports whether this one begins to slow the account
// down from its address.
func (t *throttle) Begin(k accountFrom, now time.Time) bool {
	l, _ := t.of(k)
	return l.Failed(k, now)
}

// Failed ends a try that Begin began. It reports whether it begins to slow down
// the account for strangers, or the address.
func (t *throttle) Failed(k accountFrom, now time.Time) (account, address bool) {
	if _, familiar := t.of(k); familiar {
		return false, false
	}
	account = t.accounts.Failed(k.account, now)
	if local(k.from) {
		return account, false
	}
	address = t.addresses.Failed(k.from, now)
	if n, ok := networkOf(k.from); ok {
		t.networks.Failed(n, now)
	}
	return account, address
}

// Succeeded notes that the account's owner is at an address.
func (t *throttle) Succeeded(k accountFrom, now time.Time) {
	t.strangers.Succeeded(k)
	t.familiars.Succeeded(k)
	if _, ok := t.logins[k]; !ok && len(t.logins) >= maxLogins {
		var oldest accountFrom
		at, looked := now, 0
		for k, then := range t.logins {
			if looked++; looked > sample {
				break
			}
			if !then.After(at) {
				oldest, at = k, then
			}
		}
		delete(t.logins, oldest)
	}
	t.logins[k] = now
}
