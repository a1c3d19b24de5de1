package serve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
)

func TestNewsOfBalancers(t *testing.T) {
	at := func(address, err string, ejected ...int) feed.Heard {
		return feed.Heard{Address: address, Error: err, Ejected: ejected}
	}
	for name, c := range map[string]struct {
		before, after map[string]feed.Heard
		want          []string
	}{
		"nothing": {map[string]feed.Heard{"a": at("h:1", "", 2)}, map[string]feed.Heard{"a": at("h:1", "", 2)}, nil},
		"one begins and one is gone": {map[string]feed.Heard{"a": at("h:1", "")}, map[string]feed.Heard{"b": at("h:2", "")},
			[]string{"Balancer a (h:1) is not heard any more", "Balancer b (h:2) takes requests"}},
		"one cannot listen": {nil, map[string]feed.Heard{"a": at("", "address in use")}, []string{"Balancer a does not listen: address in use"}},
		"replicas fail and recover": {map[string]feed.Heard{"a": at("h:1", "", 1, 2)}, map[string]feed.Heard{"a": at("h:1", "", 2, 3)},
			[]string{"Balancer a (h:1) gives replica 3 no requests for a while: it failed several", "Balancer a (h:1) gives replica 1 requests again"}},
	} {
		if got := balancerNews(c.before, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAServiceThatNoBalancerServesSaysWhy(t *testing.T) {
	broken, well := feed.Heard{Error: "address in use"}, feed.Heard{Address: "h:1"}
	for want, heard := range map[string]map[string]feed.Heard{
		"[no load balancer listens: address in use]": {"a": broken, "b": broken},
		"[]": {"a": broken, "b": well},
	} {
		if got := fmt.Sprint(unheard(heard)); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestNewsOfRequests(t *testing.T) {
	times := make([]int64, balancerapi.Bucket(0.02)+1)
	times[len(times)-1] = 10
	before := feed.Summary{Versions: map[int]balancerapi.Counts{1: {Statuses: map[string]int64{"2xx": 5}}}, Refused: map[string]int64{"no_replica": 1}}
	after := feed.Summary{
		Versions: map[int]balancerapi.Counts{1: {Statuses: map[string]int64{"2xx": 8}}, 2: {Statuses: map[string]int64{"2xx": 4, "5xx": 1}, FirstByte: balancerapi.Histogram{Buckets: times}}},
		Replicas: map[int]balancerapi.Counts{3: {Errors: 2}}, Refused: map[string]int64{"no_replica": 7}, Waiting: 9,
	}
	want := "In 1m0s: 7 2xx, 1 5xx, 2 times no answer of replica 3, 6 refused (no_replica), 9 waiting; first byte p50 0.018 s, p95 0.024 s"
	if got := requestNews(before, after, time.Minute); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := requestNews(after, feed.Summary{Versions: after.Versions, Replicas: after.Replicas, Refused: after.Refused}, time.Minute); got != "" {
		t.Errorf("without requests: %q", got)
	}
}
