package serve

import (
	"errors"
	"fmt"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/state"
)

// A private address is dialled only where it is known to be the replica's.
func TestWhereReplicasAreReached(t *testing.T) {
	ssh := func(host string) cloud.Reach { return cloud.Reach{Method: "ssh", Host: host, Port: 22} }
	pod := cloud.Reach{Method: "kubernetes", Host: "prod/default/chat-1-head"}
	jump, proxy := ssh("10.0.0.5"), ssh("10.0.0.5")
	jump.ProxyJump, proxy.ProxyCommand = "bastion", "nc -X connect %h %p"
	for _, tt := range []struct {
		name             string
		node             cloud.Node
		endpoint         string
		address, network string
	}{
		{"a public address", cloud.Node{InternalIP: "10.0.0.5", ExternalIP: "203.0.113.7", Reach: ssh("203.0.113.7")}, "203.0.113.7:80", "203.0.113.7:80", ""},
		{"a port that its cloud maps", cloud.Node{InternalIP: "10.0.0.5", Reach: ssh("203.0.113.7")}, "203.0.113.7:31000", "203.0.113.7:31000", ""},
		{"a private address where its sshd is", cloud.Node{InternalIP: "10.0.0.5", Reach: ssh("10.0.0.5")}, "10.0.0.5:80", "10.0.0.5:80", ""},
		{"a private address behind a jump host", cloud.Node{InternalIP: "10.0.0.5", Reach: jump}, "10.0.0.5:80", "10.0.0.5:80", balancerapi.AgentOnly},
		{"a private address behind a proxy", cloud.Node{InternalIP: "10.0.0.5", Reach: proxy}, "10.0.0.5:80", "10.0.0.5:80", balancerapi.AgentOnly},
		{"a private address of a machine that is reached at another", cloud.Node{InternalIP: "10.0.0.5", Reach: ssh("gate")}, "10.0.0.5:80", "10.0.0.5:80", balancerapi.AgentOnly},
		{"no way in", cloud.Node{InternalIP: "10.0.0.5", Reach: ssh("gate")}, "", "10.0.0.5:80", balancerapi.AgentOnly},
		{"a machine without any address", cloud.Node{Reach: ssh("gate")}, ":80", "127.0.0.1:80", balancerapi.AgentOnly},
		{"this computer", cloud.Node{InternalIP: "127.0.9.1", Reach: cloud.Reach{Method: "local"}}, "127.0.9.1:80", "127.0.9.1:80", ""},
		{"a container here", cloud.Node{InternalIP: "172.17.0.2", Reach: cloud.Reach{Method: "docker"}}, "172.17.0.2:80", "172.17.0.2:80", ""},
		{"a pod", cloud.Node{InternalIP: "10.244.0.9", Reach: pod}, "10.244.0.9:80", "10.244.0.9:80", "kubernetes/prod"},
		{"a pod behind a path of an ingress", cloud.Node{InternalIP: "10.244.0.9", Reach: pod}, "http://1.2.3.4/skypilot/x/80", "10.244.0.9:80", "kubernetes/prod"},
		{"a pod with a balancer of its own", cloud.Node{InternalIP: "10.244.0.9", Reach: pod}, "203.0.113.9:80", "203.0.113.9:80", ""},
	} {
		if address, network := reachOf(&state.Cluster{Nodes: []cloud.Node{tt.node}}, tt.endpoint, "80"); address != tt.address || network != tt.network {
			t.Errorf("%s: %s in %q, not %s in %q", tt.name, address, network, tt.address, tt.network)
		}
	}
	if address, _ := reachOf(&state.Cluster{}, "", "80"); address != "" {
		t.Errorf("a cluster without nodes is at %s", address)
	}
}

// Each failure of a launch is called by its name.
func TestWhatFailedLaunchesMean(t *testing.T) {
	unplaced := func(err error) error {
		return &api.Error{Type: api.ErrResourcesUnavailable, Message: "no place", Err: err}
	}
	for _, tt := range []struct {
		err  error
		want replicas.Failure
	}{
		{unplaced(&cloud.CapacityError{Err: errors.New("full")}), replicas.NoCapacity},
		{unplaced(&cloud.InvalidError{Err: &cloud.ImageError{Err: errors.New("no such tag")}}), replicas.ImagePull},
		{fmt.Errorf("head: %w", &cloud.ImageError{Err: errors.New("denied")}), replicas.ImagePull},
		{fmt.Errorf("head: %w", &sshconn.NoSpaceError{Host: "h", Said: "full"}), replicas.OutOfDisk},
		{&api.Error{Type: api.ErrValue, Message: "x"}, replicas.Refused},
		{errors.New("a broken connection"), replicas.LaunchError},
	} {
		if got, why := failureOf(tt.err); got != tt.want || why == "" {
			t.Errorf("%v: %s (%s), not %s", tt.err, got, why, tt.want)
		}
	}
}
