//go:build attack && linux

package attack

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestGuessingIsSlow tries a thousand wrong passwords for one account from one
// address, and some more from others, as a proxy on the server's machine tells
// them. Guesses are slowed down, nothing else reports whether one was right, and the
// account's owner gets in at any time.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	c := count(t)
	s := newSite(t, false)
	from := func(address string) *caller {
		who := s.as("uma")
		who.header = http.Header{"X-Forwarded-For": {address}}
		return who
	}
	const home, den = "192.0.2.77", "203.0.113.66"
	const guesses, guessers = 1000, 8
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var worst time.Duration
	stop := make(chan struct{})
	owner := make(chan struct{})
	go func() { // the owner works from elsewhere
		defer close(owner)
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
			uma := from(home)
			at := time.Now()
			if a := uma.get("/users/role"); a.status != 200 {
				c.add("owner kept out", 1)
				t.Errorf("uma is kept out while somebody guesses: %s", a)
			}
			mu.Lock()
			worst = max(worst, time.Since(at))
			mu.Unlock()
			uma.client.CloseIdleConnections()
		}
	}()
	budget := time.Now().Add(30 * time.Second)
	for g := range guessers {
		all.Go(func() {
			who := from(den)
			for n := range guesses / guessers {
				if time.Now().After(budget) { // slow enough
					c.add("guesses not made in time", guesses/guessers-n)
					return
				}
				who.password = fmt.Sprint("guess ", g, " ", n)
				a := who.get("/users/role")
				c.add("guesses", 1)
				switch {
				case a.err != nil:
					c.add("guesses cut", 1)
				case a.status == 429:
					c.add("guesses put off", 1)
					if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 {
						t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
					}
				case a.status == 401:
					c.add("guesses judged", 1)
				default:
					t.Errorf("a wrong password: %s", a)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	close(stop)
	<-owner
	c.add("ms for all", int(took.Milliseconds()))
	c.add("ms that uma waited at most", int(worst.Milliseconds()))
	// Five a second for one account and address is more than anybody needs.
	if judged := c.of("guesses judged"); float64(judged) > 50+5*took.Seconds() {
		t.Errorf("%d wrong passwords were judged in %v", judged, took.Round(time.Millisecond))
	}
	if worst > 5*time.Second {
		t.Errorf("uma waited for %v while somebody guessed", worst)
	}
	// Health does not report whether a guess was right, and others at that address get in.
	put := false
	for n := 0; n < 20 && !put; n++ {
		who := from(den)
		who.password = fmt.Sprint("guess of health ", n)
		a := who.get("/api/health")
		put = a.status == 429
		if !put && strings.Contains(string(a.body), "uma") {
			t.Errorf("health tells who it is: %s", a)
		}
	}
	if !put {
		t.Error("health judges any number of passwords")
	}
	who := from(den)
	who.name, who.password = "vic", s.passwords["vic"]
	if a := who.get("/users/role"); a.status != 200 {
		t.Errorf("somebody else at that address: %s", a)
	}
	// The same account from many addresses.
	before := c.of("guesses judged")
	began = time.Now()
	for n := range 200 {
		who := from(fmt.Sprintf("198.51.100.%d", n+1))
		who.password = fmt.Sprint("far guess ", n)
		if a := who.within(3*time.Second, "GET", "/users/role", nil, ""); a.status == 401 {
			c.add("guesses judged", 1)
		} else if a.status == 200 {
			t.Error("a wrong password was right")
		}
		who.client.CloseIdleConnections()
		if time.Since(began) > 15*time.Second {
			break
		}
	}
	if judged := c.of("guesses judged") - before; float64(judged) > 100+10*time.Since(began).Seconds() {
		t.Errorf("%d wrong passwords for one account from many addresses were judged in %v", judged, time.Since(began).Round(time.Millisecond))
	}
	if a := from(home).get("/users/role"); a.status != 200 {
		t.Errorf("uma is locked out: %s", a)
	}
	s.noFaults(c)
}
