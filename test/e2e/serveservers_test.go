//go:build e2e && linux

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// TestServicesOnThreeServers kills servers of a team in turn, and breaks the database's
// connections, while a service with two balancers beside them is used, scales with its
// load and is updated. Each balancer speaks to whatever server answers.
func TestServicesOnThreeServers(t *testing.T) {
	tm := harness.NewTeam(t, 3)
	r := seed(t)
	w := of(tm.Workstation)
	hosts := []string{"127.0.0.2", "127.0.0.3"}
	for _, host := range hosts {
		w.balancer("http://"+tm.Balancer.Address(), host)
	}
	policy := "replica_policy: {min_replicas: 1, max_replicas: 3, target_in_flight_per_replica: 3, upscale_delay_seconds: 0, downscale_delay_seconds: 0}"
	w.up(servedTask(t, "fluffycloud", "v1", policy))
	w.serves("a replica", 1, nil)
	var urls []string
	for _, host := range hosts {
		urls = append(urls, fmt.Sprintf("http://%s:%d/?ms=200", host, *w.service().Port))
	}
	for _, url := range urls { // a balancer elsewhere learns a moment later
		eventually(t, "a balancer serves", time.Minute, func() bool { _, err := askOnce(t.Context(), http.DefaultClient, url); return err == nil })
	}
	rotate := func(n int) {
		for i := range n {
			s := tm.Servers[i%len(tm.Servers)]
			if i%4 == 3 {
				tm.RestartDatabase(time.Duration(r.IntN(1000)) * time.Millisecond)
				continue
			}
			tm.Kill(s)
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			tm.Start(s)
		}
	}
	q := w.ask(12, urls...)
	rotate(4)
	w.serves("three replicas under load", 3, nil)
	w.sky("serve", "update", "-y", "chat", w.write("chat.yaml", servedTask(t, "fluffycloud", "v2", policy)))
	rotate(4)
	q.seen(t, "v2")
	w.serves("three replicas of the next version", 3, ofVersion(2))
	q.end(t)
	w.serves("one replica without load", 1, ofVersion(2))
	down := w.command("serve", "down", "-y", "chat")
	if err := down.Start(); err != nil {
		t.Fatal(err)
	}
	rotate(1)
	down.Wait()
	eventually(t, "the service is gone", 2*time.Minute, func() bool { return w.service() == nil })
	if left := tm.Cloud.Machines(); len(left) > 0 {
		t.Errorf("machines are left: %+v", left)
	}
}
