//go:build attack && linux

// Package attack attacks the real binary: storms of commands under kills,
// hostile archives, what a user may read and run through a server, every route by
// every role and with odd bodies, planted secrets, guessed passwords, full disks and
// lost database files.
//
//	go test -tags attack ./test/attack                                     # short, a few minutes
//	SKY_ATTACK_MINUTES=20 go test -tags attack -timeout 2h ./test/attack   # each storm for 20 minutes
//
// What is drawn at random follows SKY_ATTACK_SEED; a test that fails prints the
// seed and how to repeat it. SKY_ATTACK_REPORT names a file that the counts of each
// test are added to. SKY_TEST_POSTGRES is needed for the storm of three servers.
package attack

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// random is a test's own source, from SKY_ATTACK_SEED and the test's name. A test
// that fails says how to repeat it.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("SKY_ATTACK_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("SKY_ATTACK_SEED: %v", err)
		}
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat it with: SKY_ATTACK_SEED=%d SKY_ATTACK_MINUTES=%s go test -tags attack -timeout 2h -run '^%s$' ./test/attack", seed, os.Getenv("SKY_ATTACK_MINUTES"), t.Name())
		}
	})
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// length is how long a storm lasts: usual, or SKY_ATTACK_MINUTES.
func length(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv("SKY_ATTACK_MINUTES")
	if v == "" {
		return usual
	}
	minutes, err := strconv.ParseFloat(v, 64)
	if err != nil {
		t.Fatalf("SKY_ATTACK_MINUTES: %v", err)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// long reports whether this is the long run.
func long() bool { return os.Getenv("SKY_ATTACK_MINUTES") != "" }

// counts counts by name what a test did.
type counts struct {
	t     *testing.T
	began time.Time

	mu sync.Mutex
	n  map[string]int
}

// count begins counting; the test's end reports.
func count(t *testing.T) *counts {
	c := &counts{t: t, began: time.Now(), n: map[string]int{}}
	t.Cleanup(c.report)
	return c
}

func (c *counts) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name] += n
}

func (c *counts) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *counts) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text string
	for _, name := range slices.Sorted(maps.Keys(c.n)) {
		text += fmt.Sprintf("\n%6d %s", c.n[name], name)
	}
	c.t.Logf("%v:%s", time.Since(c.began).Round(time.Second), text)
	path := os.Getenv("SKY_ATTACK_REPORT")
	if path == "" {
		return
	}
	line, err := json.Marshal(map[string]any{"test": c.t.Name(), "failed": c.t.Failed(), "seconds": int(time.Since(c.began).Seconds()), "counts": c.n})
	if err != nil {
		c.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	f.Write(append(line, '\n'))
}
