//go:build e2e && linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestManyCommandsOnFewClusters lets several people do everything at once to
// the same clusters. Commands may be refused; nothing hangs, crashes or is left.
func TestManyCommandsOnFewClusters(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	r := seed(t)
	w.sky("api", "start")
	var wg sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]int{} // by verb and exit code
	for person := range 6 {
		s := r.Uint64()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(s, uint64(person)))
			for range 25 {
				name := fmt.Sprintf("c%d", r.IntN(3))
				args := [][]string{
					{"launch", "-y", "-d", "-c", name, "--", "sleep 0.2"},
					{"launch", "-y", "-c", name, "--num-nodes", "2", "--", "echo hi"},
					{"exec", name, "--", "echo hi"},
					{"exec", name, "-d", "--", "sleep 30"},
					{"stop", "-y", name},
					{"start", "-y", name},
					{"down", "-y", name},
					{"queue", name},
					{"cancel", "-y", "-a", name},
					{"status", "-r", name},
					{"autostop", "-y", "-i", "30", name},
				}[r.IntN(11)]
				out, code := w.run(args...)
				mu.Lock()
				ended[fmt.Sprintf("%s %d", args[0], code)]++
				mu.Unlock()
				for _, bad := range []string{"panic", "goroutine ", "nil pointer", "database is locked"} {
					if strings.Contains(out, bad) {
						t.Errorf("sky %v: exit %d\n%s", args, code, out)
					}
				}
			}
		})
	}
	wg.Wait()
	t.Log(ended)
	for _, must := range []string{"launch 0", "exec 0", "down 0"} {
		if ended[must] == 0 {
			t.Errorf("no %s among %v", must, ended)
		}
	}
	w.settled()
	for i := range 3 {
		w.run("down", "-y", fmt.Sprintf("c%d", i))
	}
	eventually(t, "all clusters are gone", time.Minute, func() bool { return len(w.folders()) == 0 })
}
