//go:build attack && linux

package attack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// TestCommandsOutliveTheirServer runs commands while the server is killed and comes
// back, again and again. None gives up.
func TestCommandsOutliveTheirServer(t *testing.T) {
	t.Parallel()
	r := random(t)
	w := harness.New(t)
	s := newStorm(t, w, nil, nil, "local")
	w.Sky("launch", "-y", "-d", "-c", "c", "--infra", "local", "--", "true")
	until := time.Now().Add(min(length(t, 20*time.Second), 10*time.Minute))
	var over atomic.Bool
	var people, killer sync.WaitGroup
	own := rand.New(rand.NewPCG(r.Uint64(), 0))
	killer.Go(func() {
		for !over.Load() {
			time.Sleep(time.Duration(500+own.IntN(2500)) * time.Millisecond)
			s.add("kill server", 1)
			w.KillServer()
			time.Sleep(time.Duration(own.IntN(1500)) * time.Millisecond)
			s.start()
		}
	})
	for person := range 3 {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(person)))
		people.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				switch own.IntN(4) {
				case 0, 1:
					p := &program{mark: fmt.Sprintf("p%d-%d", person, n)}
					res := s.run(0, 0, "exec", "c", "--", s.program(p, 0.1))
					if at := harness.Lines(s.runs)["start "+p.mark]; res.code != 0 || at != 1 {
						s.errorf("sky exec: exit %d, and its program ran %d times\n%s", res.code, at, tail(res.out))
					}
				case 2:
					if res := s.run(0, 0, "status"); res.code != 0 || !strings.Contains(res.out, "UP") {
						s.errorf("sky status: exit %d\n%s", res.code, tail(res.out))
					}
				case 3:
					if res := s.run(0, 0, "queue", "c"); res.code != 0 {
						s.errorf("sky queue: exit %d\n%s", res.code, tail(res.out))
					}
				}
			}
		})
	}
	people.Wait()
	over.Store(true)
	killer.Wait()
	s.programs()
	s.logs()
}

// TestCommandsSayWhatTheyWaitFor holds the server: a command says within a few
// seconds that it waits, and goes on when the server does.
func TestCommandsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	c := count(t)
	w := harness.New(t)
	w.Sky("launch", "-y", "-d", "-c", "c", "--infra", "local", "--", "true")
	for _, args := range [][]string{{"status"}, {"queue", "c"}, {"jobs", "queue"}} {
		pid := w.ServerPID()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		cmd := w.Command(args...)
		var out safeBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		// It gives up after 30 s if it says nothing before; this machine may be busy.
		if !harness.Within(time.Minute, func() bool { return strings.TrimSpace(out.String()) != "" }) {
			c.add("silent", 1)
			t.Errorf("sky %v says nothing beside a server that is held", args)
		}
		c.add(fmt.Sprint("ms until sky ", strings.Join(args, " "), " said so"), int(time.Since(began).Milliseconds()))
		syscall.Kill(pid, syscall.SIGCONT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("sky %v after the server went on: %v\n%s", args, err, out.String())
		}
	}
}

// safeBuffer is a buffer that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
