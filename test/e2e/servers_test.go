//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/test/harness"
)

// faultRequests is how many requests the fault test sends; SKY_E2E_FAULTS
// changes it.
func faultRequests(t *testing.T) int {
	if v := os.Getenv("SKY_E2E_FAULTS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 500
}

// TestThreeServersOnOneDatabase sends mixed requests through a balancer while the
// servers are killed in turn, the database goes away, and the cables between are
// cut. Nothing is lost, and no job runs twice.
func TestThreeServersOnOneDatabase(t *testing.T) {
	tm := harness.NewTeam(t, 3)
	r := seed(t)
	w := of(tm.Workstation)
	runs := w.write("runs", "")
	w.write("proj/hello", "from the client\n")
	clusters := []string{"c0", "c1"}
	for _, c := range clusters {
		task := w.write(c+".yaml", "workdir: "+filepath.Join(w.home, "proj")+"\nresources: {infra: fluffycloud, cpus: 1+}\nrun: cat hello\n")
		wants(t, w.sky("launch", "-y", "-c", c, task), "from the client")
	}

	total := faultRequests(t)
	sent := make(chan int)
	stop := make(chan struct{})
	var faults, people sync.WaitGroup
	var done atomic.Int64
	faults.Go(func() {
		r := rand.New(rand.NewPCG(r.Uint64(), 1))
		for round := 0; ; round++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(2000+r.IntN(3000)) * time.Millisecond):
			}
			s := tm.Servers[round%len(tm.Servers)]
			switch round % 6 {
			case 2:
				tm.RestartDatabase(time.Duration(r.IntN(2000)) * time.Millisecond)
			case 4:
				s.Cable.Cut(true)
				time.Sleep(time.Duration(r.IntN(9000)) * time.Millisecond)
				s.Cable.Cut(false)
			default:
				tm.Kill(s)
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				tm.Start(s)
			}
		}
	})
	var mu sync.Mutex
	ended := map[string]int{}
	accepted := map[string]string{} // job's mark by request
	for person := range 6 {
		people.Go(func() {
			client := tm.Client(nil)
			for i := range sent {
				mark := fmt.Sprintf("job-%d", i)
				cluster := clusters[i%len(clusters)]
				id, what, err := ask(client, i, cluster, fmt.Sprintf("echo %s >> %s", mark, runs))
				mu.Lock()
				ended[fmt.Sprintf("%s %v", what, err == nil)]++
				if what == "exec" && id != "" {
					accepted[id] = mark
				}
				mu.Unlock()
				if err != nil {
					t.Logf("person %d, %s %d: %v", person, what, i, err)
				}
				done.Add(1)
			}
		})
	}
	for i := range total {
		sent <- i
	}
	close(sent)
	people.Wait()
	close(stop)
	faults.Wait()
	t.Log(ended)
	for _, s := range tm.Servers { // whatever was left undone goes on
		s.Cable.Cut(false)
	}
	// Every request that was accepted ends, wherever.
	statuses := map[string]string{}
	eventually(t, "all requests end", 90*time.Second, func() bool {
		statuses = w.requestsOf("sky.exec")
		for id := range accepted {
			if s := statuses[id]; s == "PENDING" || s == "RUNNING" {
				return false
			}
		}
		return true
	})
	eventually(t, "jobs that were submitted run", time.Minute, func() bool {
		seen := lines(t, runs)
		for id, mark := range accepted {
			if statuses[id] == "SUCCEEDED" && seen[mark] == 0 {
				return false
			}
		}
		return true
	})
	seen := lines(t, runs)
	succeeded := 0
	for id, mark := range accepted {
		if statuses[id] == "" {
			t.Errorf("request %s (%s) was accepted and is lost", id, mark)
		}
		if statuses[id] == "SUCCEEDED" {
			succeeded++
		}
	}
	for mark, n := range seen {
		if n > 1 {
			t.Errorf("%s ran %d times", mark, n)
		}
	}
	if succeeded < len(accepted)*9/10 {
		t.Errorf("only %d of %d exec requests succeeded: %v", succeeded, len(accepted), statuses)
	}
	for _, c := range clusters {
		w.sky("down", "-y", c)
	}
}

// ask sends one request of those that people send, waits for it, and tells its
// id.
func ask(c *sky.Client, i int, cluster, run string) (id, what string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	switch i % 5 {
	case 0:
		req, err := c.Exec(ctx, api.ExecBody{Task: "run: " + strconv.Quote(run) + "\n", ClusterName: cluster})
		if err != nil {
			return "", "exec", err
		}
		_, err = req.Wait(ctx, io.Discard, sky.StreamOptions{})
		return req.ID(), "exec", err
	case 1, 2:
		req, err := c.Status(ctx, api.StatusBody{})
		if err != nil {
			return "", "status", err
		}
		records, err := req.Get(ctx)
		if err == nil && len(records) != 2 {
			err = fmt.Errorf("%d clusters", len(records))
		}
		return req.ID(), "status", err
	case 3:
		req, err := c.Queue(ctx, api.QueueBody{ClusterName: cluster})
		if err != nil {
			return "", "queue", err
		}
		_, err = req.Get(ctx)
		return req.ID(), "queue", err
	default:
		req, err := c.CostReport(ctx, api.CostReportBody{})
		if err != nil {
			return "", "cost_report", err
		}
		_, err = req.Get(ctx)
		return req.ID(), "cost_report", err
	}
}

// TestARequestMovesBetweenServers follows, cancels and takes over a request
// through servers that did not accept it.
func TestARequestMovesBetweenServers(t *testing.T) {
	tm := harness.NewTeam(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a, b, c := tm.Servers[0], tm.Servers[1], tm.Servers[2]
	w := of(tm.Workstation)
	w.sky("launch", "-y", "-c", "c1", "--infra", "fluffycloud", "--", "true")

	// A cluster lock that somebody holds keeps a launch running.
	launch := func(s *harness.Server) *sky.Request[api.LaunchResult] {
		req, err := tm.Client(s).Exec(ctx, api.ExecBody{Task: "run: echo once\n", ClusterName: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	req := launch(a)
	if _, err := sky.RequestOf[api.LaunchResult](tm.Client(b), req.ID()).Wait(ctx, io.Discard, sky.StreamOptions{}); err != nil {
		t.Errorf("followed through another server: %v", err)
	}
	var log strings.Builder
	if err := tm.Client(c).StreamRequest(ctx, req.ID(), &log, sky.StreamOptions{}); err != nil || !strings.Contains(log.String(), "Job submitted") && log.Len() == 0 {
		t.Errorf("the log read through a third server: %q %v", log.String(), err)
	}

	// Taken over: the server dies with a long request under way.
	task := w.write("slow.yaml", "resources: {infra: fluffycloud}\nnum_nodes: 8\nrun: echo done\n")
	text, err := os.ReadFile(task)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := tm.Client(a).Launch(ctx, api.LaunchBody{Task: string(text), ClusterName: "c2"})
	if err != nil {
		t.Fatal(err)
	}
	var attempt int
	eventually(t, "the request runs", time.Minute, func() bool {
		return tm.Database.One(&attempt, "SELECT attempt FROM requests WHERE id = '"+slow.ID()+"'") == nil && attempt > 0
	})
	tm.Kill(a) // eight machines take much longer
	died := time.Now()
	eventually(t, "another server has the request", time.Minute, func() bool {
		err := tm.Database.One(&attempt, "SELECT attempt FROM requests WHERE id = '"+slow.ID()+"'")
		return err == nil && attempt > 1
	})
	t.Logf("taken over after %v", time.Since(died).Round(100*time.Millisecond))
	if _, err := sky.RequestOf[api.LaunchResult](tm.Client(b), slow.ID()).Get(ctx); err != nil {
		t.Errorf("the request that was taken over: %v", err)
	}

	// Nodes on a server's own machine are out of the others' reach.
	if out, code := w.with("SKYPILOT_API_SERVER_ENDPOINT="+fmt.Sprint("http://127.0.0.1:", b.Port)).run("launch", "-y", "-c", "mine", "--infra", "local", "--", "echo hi"); code != 0 {
		t.Errorf("a local cluster: %s", out)
	}
	other := w.with("SKYPILOT_API_SERVER_ENDPOINT=" + fmt.Sprint("http://127.0.0.1:", c.Port))
	out, code := other.run("exec", "mine", "--", "true")
	if code == 0 {
		t.Errorf("another server's local cluster: %s", out)
	}
	wants(t, out, "on the machine of another API server")
	if out, code = other.run("status", "-r"); !strings.Contains(out, "mine") {
		t.Errorf("exit %d: a refresh through another server forgot the local cluster:\n%s", code, out)
	}
	w.with("SKYPILOT_API_SERVER_ENDPOINT="+fmt.Sprint("http://127.0.0.1:", b.Port)).sky("down", "-y", "mine")
	w.sky("down", "-y", "c1", "c2")
}
