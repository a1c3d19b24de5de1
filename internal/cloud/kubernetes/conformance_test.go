package kubernetes

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

func quick(string) map[string]any { return map[string]any{"provision_timeout": 1} }

func TestConformance(t *testing.T) {
	t.Parallel()
	cloudtest.RunBeside(t, func(t testing.TB) cloudtest.Harness {
		f, other := startFake(t), startFake(t)
		all := contexts(t, map[string]string{"here": f.server.URL, "there": other.server.URL}, "here")
		dir := t.TempDir()
		make := func(testing.TB) cloud.Provider {
			return New(Options{Contexts: all, Dir: dir, Sections: func() catalog.Sections { return quick }})
		}
		elsewhere := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "there"}, InstanceType: "2CPU--2GB"}
		h := cloudtest.Harness{
			Provider:  make(t),
			Spec:      cloud.LaunchSpec{Offer: cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "here"}, InstanceType: "2CPU--2GB", CPUs: 2, MemoryGiB: 2}, Settings: quick("")},
			Elsewhere: &elsewhere,
			Another:   make,
			Many:      700, // more than one page
			Fill:      func(_ testing.TB, _ cloud.Offer, left int) { f.more(left) },
			Quota: func(_ testing.TB, _ cloud.Offer, left int) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.quota = left
			},
			Slow: func(_ testing.TB, boot time.Duration) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.boot = boot
			},
			Kill: func(_ testing.TB, n cloud.Node) {
				f.mu.Lock()
				defer f.mu.Unlock()
				_, _, pod, _ := Locate(n.Reach.Host)
				f.drop("/api/v1/namespaces/team/pods", pod)
			},
			Halt: func(_ testing.TB, n cloud.Node) {
				_, _, pod, _ := Locate(n.Reach.Host)
				f.update("/api/v1/namespaces/team/pods", pod, func(o obj) { asObj(o["status"])["phase"] = "Succeeded" })
			},
			Seed: func(_ testing.TB, id cloud.ClusterID) {
				f.put("/api/v1/namespaces/team/pods", obj{"apiVersion": "v1", "kind": "Pod", "spec": obj{},
					"metadata": obj{"name": podName(id, 0, false), "namespace": "team", "labels": texts(cloud.LaunchSpec{ID: id}.NodeTags(0))},
					"status":   obj{"phase": "Running", "podIP": "10.3.0.1"}})
			},
			Inventory: func(testing.TB) []string { return append(f.inventory(), other.inventory()...) },
			OpenPorts: func(_ testing.TB, n cloud.Node) []string {
				f.mu.Lock()
				defer f.mu.Unlock()
				var open []int
				for _, s := range f.objects["/api/v1/namespaces/team/services"] {
					for _, p := range asList(asObj(s["spec"])["ports"]) {
						open = append(open, int(asObj(p)["port"].(float64)))
					}
				}
				return ranges(open)
			},
		}
		f.hook.troubles(&h)
		restore := h.Restore
		h.Restore = func(t testing.TB) {
			restore(t)
			f.more(-1)
			f.mu.Lock()
			f.quota = -1
			f.mu.Unlock()
		}
		return h
	})
}

// ranges writes sorted ports as tasks do.
func ranges(ports []int) []string {
	has := map[int]bool{}
	for _, p := range ports {
		has[p] = true
	}
	var out []string
	for p := 1; p <= 65535; p++ {
		if !has[p] || has[p-1] {
			continue
		}
		last := p
		for has[last+1] {
			last++
		}
		s := strconv.Itoa(p)
		if last > p {
			s += "-" + strconv.Itoa(last)
		}
		out = append(out, s)
	}
	return out
}

func TestLocate(t *testing.T) {
	for _, tt := range []struct{ host, want string }{
		{"ctx/ns/pod", "ctx ns pod"}, {"arn:aws:eks:x:1:cluster/prod/ns/pod", "arn:aws:eks:x:1:cluster/prod ns pod"},
		{"ns/pod", "error"}, {"/ns/pod", "error"}, {"ctx/ns/", "error"}, {"", "error"},
	} {
		c, ns, pod, err := Locate(tt.host)
		got := strings.Join([]string{c, ns, pod}, " ")
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.host, got, tt.want)
		}
	}
}
