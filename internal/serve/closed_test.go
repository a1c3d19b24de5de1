//go:build unix

package serve_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// networks are those of the replicas that balancers have.
func (i *installation) networks() map[int]string {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := map[int]string{}
	for _, s := range i.got.Services {
		for _, r := range s.Replicas {
			out[r.ID] = r.Network
		}
	}
	return out
}

// connected asks a replica for an answer, as a balancer does that goes through the server.
func (i *installation) connected(replica int) (int, error) {
	conn, err := i.m.Connect(i.s.Context(), "chat", replica)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// Replicas whose port is closed to the server are ready all the same: they are probed,
// and reached by balancers, through their agents.
func TestReplicasWithClosedPortsAreReachedThroughTheirAgents(t *testing.T) {
	bubble(t, func(i *installation) {
		i.shut(true)
		i.up(service)
		i.until("ready", func(s *api.Service) bool { i.agentsDial(); return ready(2)(s) })
		if got := i.networks(); len(got) != 2 || got[1] != balancerapi.AgentOnly || got[2] != balancerapi.AgentOnly {
			t.Errorf("balancers reach them in %v", got)
		}
		if code, err := i.connected(2); code != 200 || err != nil {
			t.Errorf("%d, %v", code, err)
		}
		if _, err := i.connected(3); err == nil {
			t.Error("there is no replica 3")
		}
		// What it was reached by is not forgotten with the server.
		i.mu.Lock()
		i.got = balancerapi.Table{}
		i.mu.Unlock()
		i.serve(-1)
		i.until("in the table of the next server", func(*api.Service) bool { return i.networks()[1] == balancerapi.AgentOnly })
		if code, err := i.connected(1); code != 200 || err != nil {
			t.Errorf("after a crash: %d, %v", code, err)
		}
	})
}

// A port that is closed while a replica is ready does not end it.
func TestAPortThatIsClosedLater(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		if got := i.networks(); got[1] != "" {
			t.Errorf("balancers reach them in %v", got)
		}
		i.agentsDial()
		i.shut(true)
		i.until("reached through agents", func(s *api.Service) bool {
			n := i.networks()
			return n[1] == balancerapi.AgentOnly && n[2] == balancerapi.AgentOnly && ready(2)(s)
		})
		// A program that does not answer either way is still found out.
		i.answer(func(string) int { return 500 })
		i.until("not ready", func(s *api.Service) bool { return s.Replicas[0].Status == string(api.ReplicaNotReady) })
	})
}
