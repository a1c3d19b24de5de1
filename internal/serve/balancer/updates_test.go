package balancer

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// Requests of every kind go on while replicas come, go, and move between versions:
// none fails, and all are counted.
func TestNoRequestFailsWhileTablesChange(t *testing.T) {
	b := newBalancer(t, Options{})
	var replicas []balancerapi.Replica
	for id := range 6 {
		r := backend(t, id+1, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/ws") {
				upgradeEcho(w, r)
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			for i := range 3 {
				fmt.Fprintf(w, "%d %d\n", i, n)
				http.NewResponseController(w).Flush()
			}
		})
		r.Version = 1 + id/3
		replicas = append(replicas, r)
	}
	policies := []string{balancerapi.LeastLoad, balancerapi.RoundRobin, balancerapi.SessionAffinity, balancerapi.PrefixAware, balancerapi.InstanceAwareLeastLoad}
	change := func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		rows := make([]balancerapi.Replica, 0, len(replicas))
		keep := rnd.IntN(len(replicas))
		for k, r := range replicas {
			if k != keep {
				r.State = []balancerapi.State{balancerapi.Ready, balancerapi.Draining, balancerapi.Starting}[rnd.IntN(3)]
				if rnd.IntN(4) == 0 {
					continue
				}
			}
			rows = append(rows, r)
		}
		s := balancerapi.Service{Policy: balancerapi.Policy{Name: policies[i%len(policies)]}, Versions: []balancerapi.Version{{Version: 1, Weight: 1}, {Version: 2, Weight: 1}}}
		if s.Policy.Name == balancerapi.SessionAffinity {
			s.Policy.Header = "X-Session"
		}
		apply(t, b, s, rows...)
	}
	change(0)
	stop := make(chan struct{})
	var sent, upgrades atomic.Int64
	var g sync.WaitGroup
	for k := range 6 {
		g.Go(func() {
			c := client(t)
			if k%3 == 2 {
				c = h2client(t)
			}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				size := []int{0, 10, maxReplay + 5}[i%3]
				req, _ := http.NewRequest("POST", url(b), io.LimitReader(zeros{}, int64(size)))
				req.ContentLength = int64(size)
				if size == 0 {
					req, _ = http.NewRequest("GET", url(b), nil)
				}
				req.Header.Set("X-Session", fmt.Sprint(k, i%5))
				resp, err := c.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				sent.Add(1)
				if want := fmt.Sprintf("0 %[1]d\n1 %[1]d\n2 %[1]d\n", size); err != nil || resp.StatusCode != 200 || string(body) != want {
					t.Errorf("%s: %q, %v", resp.Status, body, err)
					return
				}
			}
		})
	}
	addr := b.Addr("chat").String()
	g.Go(func() {
		c, r := rawUpgrade(t, addr)
		readLine(t, r)
		readLine(t, r)
		upgrades.Add(1)
		for i := 0; ; i++ { // a connection that outlives all replicas' removals
			select {
			case <-stop:
				c.Close()
				return
			default:
			}
			fmt.Fprintf(c, "%d\n", i)
			if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("echo %d\n", i) {
				t.Errorf("%q, %v", line, err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	for i := range 60 {
		change(i)
		for n := sent.Load(); sent.Load() < n+10 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	g.Wait()
	eventually(t, "everything has ended", func() bool { return inFlight(b) == 0 })
	rep := b.Report(nil).Services[0]
	ended, recent := int64(0), int64(0)
	for _, v := range rep.Versions {
		for _, n := range v.Statuses {
			ended += n
		}
		if v.Errors != 0 {
			t.Errorf("version %d has %d errors", v.Version, v.Errors)
		}
	}
	for _, s := range rep.Recent {
		recent += s.N
	}
	if want := sent.Load() + upgrades.Load(); rep.Arrivals != want || ended != want || recent != want {
		t.Errorf("%d requests: %d arrivals, %d by second, %d ended", want, rep.Arrivals, recent, ended)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
