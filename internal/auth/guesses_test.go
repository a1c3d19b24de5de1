package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/tcpowner"
)

// answered is how a gate answers Basic credentials: "in", the status, or how long
// the caller has to wait.
func answered(t *testing.T, g *Gate, from, name, password string, headers ...string) string {
	t.Helper()
	return answer(t, g, ask(from, "/status", append(headers, "Authorization", basic(name, password))...))
}

func answer(t *testing.T, g *Gate, r *http.Request) string {
	t.Helper()
	c, err := g.Identify(r)
	d, denied := errors.AsType[*Denial](err)
	switch {
	case denied && d.Status == http.StatusTooManyRequests:
		if n, err := strconv.Atoi(d.Header.Get("Retry-After")); err != nil || n < 1 || !strings.Contains(d.Message, fmt.Sprintf("Try again in %d second", n)) {
			t.Errorf("Retry-After %q, %q", d.Header.Get("Retry-After"), d.Message)
		}
		return "wait " + d.Header.Get("Retry-After")
	case denied:
		return strconv.Itoa(d.Status)
	case err != nil:
		t.Fatal(err)
	case c != nil:
		return "in"
	}
	return "nobody"
}

const elsewhere = "198.51.100.7"

// bubble runs f with a gate for ada, in virtual time.
func bubble(t *testing.T, f func(t *testing.T, g *Gate, s *state.Store)) {
	synctest.Test(t, func(t *testing.T) {
		g, s := open(t, Options{Basic: true, ServiceAccounts: true, Initial: "ada:" + secretHash})
		f(t, g, s)
	})
}

func TestWrongPasswordsAreSlowedDown(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		n := 0
		guess := func(from string) string {
			n++
			return answered(t, g, from, "ada", fmt.Sprint("guess ", n))
		}
		for i := range strangerPace.free {
			if got := guess(there); got != "401" {
				t.Fatalf("guess %d: %s", i+1, got)
			}
		}
		for _, want := range []int{1, 2, 4, 8, 16} {
			told := fmt.Sprint("wait ", want)
			if got := guess(there); got != told {
				t.Fatalf("%s, want %s", got, told)
			}
			if got := answered(t, g, there, "ada", "secret"); got != told {
				t.Fatalf("the right password before the time: %s", got)
			}
			time.Sleep(time.Duration(want) * time.Second)
			if got := guess(there); got != "401" {
				t.Fatalf("after %d s: %s", want, got)
			}
		}
		if got := answered(t, g, elsewhere, "ada", "secret"); got != "in" {
			t.Errorf("the owner elsewhere: %s", got)
		}
		if got := answered(t, g, there, "ada", "secret"); got != "in" {
			t.Errorf("a password that is known to be right, from where somebody guesses: %s", got)
		}
	})
}

func TestAHealthProbeIsNoOracle(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		probe := func(password string) string {
			return answer(t, g, ask(there, HealthPath, "Authorization", basic("ada", password)))
		}
		for i := range strangerPace.free {
			if got := probe(fmt.Sprint(i)); got != "nobody" {
				t.Fatal(got)
			}
		}
		if got := probe("another"); got != "wait 1" {
			t.Errorf("one guess too many: %s", got)
		}
		if got := probe("secret"); got != "wait 1" {
			t.Errorf("the right one at the wrong time: %s", got)
		}
		if got := answer(t, g, ask(there, HealthPath)); got != "nobody" {
			t.Errorf("a probe without credentials: %s", got)
		}
	})
}

func TestTheSameWrongPasswordIsOneGuess(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, s *state.Store) {
		for range 50 { // a program with the password of before
			if got := answered(t, g, there, "ada", "old"); got != "401" {
				t.Fatal(got)
			}
		}
		if got := answered(t, g, there, "ada", "secret"); got != "in" {
			t.Errorf("the right one: %s", got)
		}
		if n := len(failedLogins(t, s)); n != 1 {
			t.Errorf("%d entries in the audit log", n)
		}
	})
}

// A client that makes many calls at once with a password that this server has not
// seen yet is let in, at the price of one comparison.
func TestTheSamePasswordAtOnceIsOneTry(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got := answered(t, g, there, "ada", "secret"); got != "in" {
					t.Error(got)
				}
			})
		}
		all.Wait()
	})
}

// Many wrong ones at once are not compared at once.
func TestGuessesAtOnceAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		var all sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		for i := range 100 {
			all.Go(func() {
				a := answered(t, g, there, "ada", fmt.Sprint("guess ", i))
				mu.Lock()
				defer mu.Unlock()
				got[a]++
			})
		}
		all.Wait()
		if got["401"] != strangerPace.free || got["wait 1"] != 100-strangerPace.free {
			t.Errorf("%v", got)
		}
	})
}

// A client that goes away while its password waits to be compared leaves nothing
// that others wait for.
func TestACallerWhoGoesAwayKeepsNobodyWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		for range cap(g.guesses.turns) {
			g.guesses.turns <- struct{}{}
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan string, 1)
		go func() {
			_, err := g.Identify(ask(there, "/status", "Authorization", basic("ada", "secret")).WithContext(ctx))
			first <- err
		}()
		synctest.Wait()
		go func() { second <- answered(t, g, there, "ada", "secret") }()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-g.guesses.turns
		if got := <-second; got != "in" {
			t.Error(got)
		}
		if len(g.guesses.running) != 0 {
			t.Error("something still runs")
		}
	})
}

// While strangers guess from everywhere, new addresses wait for their turn, and
// the addresses that the owner has used before do not.
func TestAnAccountUnderAttack(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, s *state.Store) {
		const home = "192.0.2.1"
		if got := answered(t, g, home, "ada", "secret"); got != "in" {
			t.Fatal(got)
		}
		judged := 0
		for i := range 300 {
			if answered(t, g, fmt.Sprintf("203.0.%d.%d", i/200, 1+i%200), "ada", fmt.Sprint("guess ", i)) == "401" {
				judged++
			}
			time.Sleep(50 * time.Millisecond)
		}
		if judged > 100 {
			t.Errorf("%d of 300 guesses from as many addresses were judged in 15 s", judged)
		}
		g.guesses.good = newRemembered(maxGood) // as after her password changed
		if got := answered(t, g, home, "ada", "secret"); got != "in" {
			t.Errorf("the owner at home: %s", got)
		}
		g.guesses.good = newRemembered(maxGood)
		waited := 0
		for i := range 20 {
			from := fmt.Sprintf("198.51.100.%d", i+1)
			if got := answered(t, g, from, "ada", "secret"); got != "in" {
				var seconds int
				if _, err := fmt.Sscanf(got, "wait %d", &seconds); err != nil || seconds > mostTurns*3 {
					t.Fatalf("the owner on a journey: %s", got)
				}
				waited++
				time.Sleep(time.Duration(seconds) * time.Second)
				if got := answered(t, g, from, "ada", "secret"); got != "in" {
					t.Fatalf("at the time that was told: %s", got)
				}
			}
			g.guesses.good = newRemembered(maxGood)
		}
		if waited == 0 {
			t.Error("no new address had to wait")
		}
		slowed := 0
		for _, e := range failedLogins(t, s) {
			if strings.Contains(e.Detail, "from new addresses are slowed down") {
				slowed++
			}
		}
		if slowed != 1 {
			t.Errorf("the audit log says %d times that the account is slowed down", slowed)
		}
	})
}

// Many names from one address have to wait; a user who logged in from there before
// does not.
func TestManyNamesFromOneAddress(t *testing.T) {
	for _, c := range []struct {
		name    string
		from    func(i int) string
		owner   string
		slowed  bool
		headers []string
	}{
		{"an address", func(int) string { return there }, there, true, nil},
		{"a network of IPv6", func(i int) string { return fmt.Sprintf("2001:db8:1:2::%x", i+1) }, "2001:db8:1:2::ffff", true, nil},
		{"behind a proxy that is trusted", func(int) string { return "127.0.0.1" }, "127.0.0.1", true, []string{"X-Forwarded-For", there}},
		{"behind a proxy that tells nothing", func(int) string { return "127.0.0.1" }, "127.0.0.1", false, []string{"X-Forwarded-Proto", "https"}},
		{"addresses of their own", func(i int) string { return fmt.Sprintf("203.0.113.%d", i+1) }, elsewhere, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *Gate, s *state.Store) {
				g.o.Proxy.Trusted, _ = prefixes([]string{"127.0.0.0/8"})
				g.accountOf = func(netip.AddrPort, netip.AddrPort) tcpowner.Owner { return uid(g.uid) }
				if err := s.Users().Create(t.Context(), state.User{ID: UserID("bob"), Name: "bob", Role: "user"}, secretHash); err != nil {
					t.Fatal(err)
				}
				if got := answered(t, g, c.owner, "bob", "secret", c.headers...); got != "in" {
					t.Fatal(got)
				}
				g.guesses.good = newRemembered(maxGood)
				for i := range 40 {
					answered(t, g, c.from(i), fmt.Sprint("name ", i), "123456", c.headers...)
				}
				want := "in"
				if c.slowed {
					want = "wait"
				}
				if got := answered(t, g, c.owner, "ada", "secret", c.headers...); !strings.HasPrefix(got, want) {
					t.Errorf("somebody new there: %s, want %s", got, want)
				}
				if got := answered(t, g, c.owner, "bob", "secret", c.headers...); got != "in" {
					t.Errorf("who was there before: %s", got)
				}
				time.Sleep(time.Hour)
				if got := answered(t, g, c.owner, "ada", "secret", c.headers...); got != "in" {
					t.Errorf("an hour later: %s", got)
				}
			})
		})
	}
}

// Unknown names are slowed like known ones, and nothing tells them apart.
func TestUnknownNamesAreLikeKnownOnes(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		for i := range 20 {
			known, unknown := answered(t, g, there, "ada", fmt.Sprint(i)), answered(t, g, elsewhere, "nobody", fmt.Sprint(i))
			if known != unknown {
				t.Errorf("guess %d: %s for a user, %s for nobody", i, known, unknown)
			}
		}
	})
}

// A decoy costs what users' hashes cost, and stays the same for a name.
func TestDecoys(t *testing.T) {
	g, s := open(t, Options{Basic: true})
	var d decoys
	if h, err := d.of(t.Context(), s, "x", time.Now()); err != nil || h != decoy || kindOf(h) == nil {
		t.Fatalf("without users: %q, %v", h, err)
	}
	hashes := map[string]bool{}
	for i, h := range []string{"$2y$05$" + strings.Repeat("u", 53), "$2y$12$" + strings.Repeat("u", 53), secretHash} {
		name := fmt.Sprint("user", i)
		if err := s.Users().Create(t.Context(), state.User{ID: UserID(name), Name: name, Role: "user"}, h); err != nil {
			t.Fatal(err)
		}
		hashes[h] = true
	}
	d, now := decoys{}, time.Now()
	seen := map[string]int{}
	for i := range 300 {
		name := fmt.Sprint("nobody ", i)
		h, err := d.of(t.Context(), s, name, now)
		again, err2 := d.of(t.Context(), s, name, now.Add(time.Hour))
		if err != nil || err2 != nil || !hashes[h] || h != again {
			t.Fatalf("%s: %q, then %q, %v, %v", name, h, again, err, err2)
		}
		seen[h]++
	}
	for h := range hashes {
		if seen[h] < 50 {
			t.Errorf("%s is the decoy of %d names of 300", h, seen[h])
		}
	}
	// The password that fits a decoy lets nobody in.
	for i := range 20 {
		if got := answered(t, g, fmt.Sprintf("198.51.100.%d", i), fmt.Sprint("nobody ", i), "secret"); got != "401" {
			t.Errorf("nobody is let in: %s", got)
		}
	}
}

func TestForgedTokensAndSessions(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, s *state.Store) {
		token, err := g.MintToken("sa-x", "x", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Tokens().Create(t.Context(), state.Token{ID: "x", Name: "x", Hash: TokenHash(token), AccountID: "sa-x", CreatedAt: time.Now()}, state.User{ID: "sa-x", Name: "x", Type: "sa", Role: "user"}); err != nil {
			t.Fatal(err)
		}
		session, err := g.newSession(t.Context(), UserID("ada"))
		if err != nil {
			t.Fatal(err)
		}
		bearer := func(text string) string { return answer(t, g, ask(there, "/status", "Authorization", "Bearer "+text)) }
		cookie := func(text string) string {
			return answer(t, g, ask(there, "/status", "Cookie", SessionCookie+"="+text))
		}
		for i := range secretPace.free / 2 {
			if got := bearer(fmt.Sprintf("sky_%d", i)); got != "401" {
				t.Fatal(got)
			}
			if got := cookie(fmt.Sprint(i)); got != "nobody" {
				t.Fatal(got)
			}
		}
		for _, c := range []struct{ name, got, want string }{
			{"a forged token", bearer("sky_x"), "wait 1"}, {"a forged session", cookie("x"), "wait 1"},
			{"a good token", bearer(token), "in"}, {"a good session", cookie(session), "in"},
			{"a forged session with a password", answered(t, g, there, "ada", "secret", "Cookie", SessionCookie+"=x"), "in"},
			{"a forged token elsewhere", answer(t, g, ask(elsewhere, "/status", "Authorization", "Bearer sky_x")), "401"},
		} {
			if c.got != c.want {
				t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
			}
		}
		// What was ours once is no guess.
		if err := s.Users().SetPassword(t.Context(), UserID("ada"), "abNANd1rDfiNc"); err != nil {
			t.Fatal(err)
		}
		if err := s.Tokens().Delete(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		for range secretPace.free + 1 {
			if got := bearer(token); got != "401" {
				t.Fatalf("a token that was revoked: %s", got)
			}
			if got := cookie(session); got != "nobody" {
				t.Fatalf("a session that has ended: %s", got)
			}
		}
		time.Sleep(time.Hour)
		if got := bearer("sky_x"); got != "401" {
			t.Errorf("an hour later: %s", got)
		}
	})
}

// Command lines that wait for their logins are never put off, one who asks much
// more is.
func TestLookups(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, _ *state.Store) {
		r := ask(there, PollPath)
		for range 300 * 15 { // 15 command lines for 5 minutes
			if err := g.Lookup(r); err != nil {
				t.Fatal(err)
			}
			g.LookupFailed(r)
			time.Sleep(time.Second / 15)
		}
		refused := 0
		for range 1000 {
			if err := g.Lookup(r); err != nil {
				refused++
				continue
			}
			g.LookupFailed(r)
		}
		if refused < 300 {
			t.Errorf("%d of 1000 questions at once were put off", refused)
		}
		if err := g.Lookup(ask(elsewhere, PollPath)); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
		local := ask(here, PollPath)
		for range 2000 {
			g.LookupFailed(local)
		}
		if err := g.Lookup(local); err != nil {
			t.Errorf("on this machine: %v", err)
		}
		var none *Gate
		if none.LookupFailed(r); none.Lookup(r) != nil {
			t.Error("a server without logins puts off")
		}
	})
}

// A client with wrong cookies or states for an OAuth2 proxy, again and again, is refused
// before the proxy is asked.
func TestOAuth2GuessesArePutOff(t *testing.T) {
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		status := http.StatusUnauthorized
		if r.URL.Path == OAuth2Prefix+"callback" {
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
	}))
	defer proxy.Close()
	base, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := open(t, Options{OAuth2: base})
	now := time.Now()
	g.now = func() time.Time { return now }
	forward := g.Forward()
	for range lookupPace.free / 2 {
		if got := answer(t, g, ask(there, "/status", "Cookie", "_oauth2_proxy=x")); got != "401" {
			t.Fatal(got)
		}
		w := httptest.NewRecorder()
		if forward.ServeHTTP(w, ask(there, OAuth2Prefix+"callback?state=x")); w.Code != http.StatusForbidden {
			t.Fatal(w.Code)
		}
	}
	before := asked
	if got := answer(t, g, ask(there, "/status", "Cookie", "_oauth2_proxy=x")); got != "wait 1" {
		t.Errorf("one more: %s", got)
	}
	w := httptest.NewRecorder()
	if forward.ServeHTTP(w, ask(there, OAuth2Prefix+"callback?state=x")); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("one more state: %d %v", w.Code, w.Header())
	}
	if asked != before {
		t.Error("the proxy was asked")
	}
	if got := answer(t, g, ask(elsewhere, "/status", "Cookie", "_oauth2_proxy=x")); got != "401" {
		t.Errorf("elsewhere: %s", got)
	}
}

func failedLogins(t *testing.T, s *state.Store) []state.AuditEntry {
	t.Helper()
	list, err := s.Audit().List(t.Context(), state.AuditFilter{Action: LoginAction})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestFailedLoginsAreAudited(t *testing.T) {
	bubble(t, func(t *testing.T, g *Gate, s *state.Store) {
		answered(t, g, there, "ada", "hunter2 a")
		answered(t, g, elsewhere, "hunter2 as a name", "x")
		answer(t, g, ask(there, "/status", "Authorization", "Bearer sky_hunter2"))
		got := map[string]string{}
		for _, e := range failedLogins(t, s) {
			got[e.UserName+" "+e.Login+" "+e.Address] = e.Result + " " + e.Detail
		}
		want := map[string]string{
			"ada basic " + there: "DENIED wrong password", " basic " + elsewhere: "DENIED no such user", " token " + there: "DENIED invalid token",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		for i := range 1000 {
			answered(t, g, there, "ada", fmt.Sprint("hunter2 ", i))
		}
		slowed := 0
		list := failedLogins(t, s)
		for _, e := range list {
			if strings.Contains(e.Detail, "for this user from this address are slowed down") {
				slowed++
			}
		}
		if slowed != 1 || len(list) > 20 {
			t.Errorf("%d entries for 1000 more guesses, %d say that they are slowed down", len(list), slowed)
		}
		text, err := json.Marshal(list)
		if err != nil || strings.Contains(string(text), "hunter2") {
			t.Errorf("a password is in the audit log: %s, %v", text, err)
		}
	})
}

// Strangers cannot fill the disk with entries.
func TestNotesAreBounded(t *testing.T) {
	n, now := newNotes(), time.Unix(1e9, 0)
	written, omitted := 0, 0
	for range 10000 {
		if before, ok := n.take(now); ok {
			written++
			omitted += before
		}
		now = now.Add(time.Millisecond)
	}
	if written < notesAtOnce || written > notesAtOnce+11*notesPerSecond {
		t.Errorf("%d entries in 10 s", written)
	}
	if last, ok := n.take(now.Add(time.Minute)); !ok || omitted+last != 10000-written {
		t.Errorf("%d and %d omitted, %v", omitted, last, ok)
	}
}

func TestRememberedIsBounded(t *testing.T) {
	r := newRemembered(3)
	for i := range 10 {
		r.add(pairMark{byte(i)})
		r.add(pairMark{byte(i)})
	}
	if len(r.set) != 3 || !r.has(pairMark{9}) || !r.has(pairMark{7}) || r.has(pairMark{6}) {
		t.Errorf("%v", r.set)
	}
}
