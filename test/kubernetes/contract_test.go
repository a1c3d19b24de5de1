//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
)

// The contract of package cloud, asked of a real cluster. What only an API
// server in trouble can show is asked of the fake.
func TestTheContractOnARealCluster(t *testing.T) {
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		dir := t.TempDir()
		pod := func(n cloud.Node) string {
			_, _, pod, err := kubernetes.Locate(n.Reach.Host)
			if err != nil {
				t.Error(err)
			}
			return pod
		}
		spec := small(cloud.ClusterID{}, 0)
		spec.Offer.InstanceType = "" // the size that is offered is the whole machine
		contexts := kubernetes.NewContexts(dir)
		run := func(t testing.TB, n cloud.Node, command string) error {
			res, err := contexts.Exec(t.Context(), n.Reach.Host, []string{"/bin/sh", "-c", command}, nil)
			if err == nil && res.Code != 0 {
				err = fmt.Errorf("exit code %d: %s", res.Code, res.Stderr)
			}
			return err
		}
		return cloudtest.Harness{
			Provider: provider(t, dir),
			Spec:     spec,
			Another:  func(t testing.TB) cloud.Provider { return provider(t, dir) },
			Many:     30,
			Quota: func(t testing.TB, _ cloud.Offer, left int) {
				ask("DELETE", "resourcequotas/few", nil)
				mustAsk(t, "POST", "resourcequotas", map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "few"},
					"spec": map[string]any{"hard": map[string]any{"pods": strconv.Itoa(len(names(t, "pods")) + left)}}})
				eventually(t, "the quota to hold", func() bool {
					_, known := mustAsk(t, "GET", "resourcequotas/few", nil)["status"].(map[string]any)["hard"]
					return known
				})
			},
			Restore: func(t testing.TB) {
				if _, code, err := ask("DELETE", "resourcequotas/few", nil); err != nil || code >= 300 && code != http.StatusNotFound {
					t.Errorf("the quota stays: %d %v", code, err)
				}
			},
			Kill: func(t testing.TB, n cloud.Node) {
				mustAsk(t, "DELETE", "pods/"+pod(n), map[string]any{"gracePeriodSeconds": 0})
			},
			Halt: func(t testing.TB, n cloud.Node) {
				if err := run(t, n, "kill -TERM 1"); err != nil {
					t.Error(err)
				}
				eventually(t, "the pod to end", func() bool {
					p, code, err := ask("GET", "pods/"+pod(n), nil)
					return err == nil && (code == http.StatusNotFound || p["status"].(map[string]any)["phase"] == "Succeeded")
				})
			},
			Login: func(t testing.TB, n cloud.Node) error { return run(t, n, "true") },
			Seed: func(t testing.TB, id cloud.ClusterID) {
				tags := map[string]any{}
				for k, v := range (cloud.LaunchSpec{ID: id}).NodeTags(0) {
					tags[k] = v
				}
				mustAsk(t, "POST", "pods", map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": id.Name + "-head", "labels": tags},
					"spec": map[string]any{"schedulingGates": []any{map[string]any{"name": "sky.test/never"}},
						"containers": []any{map[string]any{"name": "ray-node", "image": "localhost/shell:1"}}}})
			},
			Inventory: func(t testing.TB) (all []string) {
				for _, kind := range []string{"pods", "services", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", "persistentvolumeclaims"} {
					all = append(all, names(t, kind)...)
				}
				slices.Sort(all)
				return all
			},
			OpenPorts: func(t testing.TB, _ cloud.Node) (open []string) {
				items, _ := mustAsk(t, "GET", "services", nil)["items"].([]any)
				for _, s := range items {
					spec := s.(map[string]any)["spec"].(map[string]any)
					if spec["type"] != "LoadBalancer" {
						continue
					}
					var ports []int
					for _, p := range spec["ports"].([]any) {
						ports = append(ports, int(p.(map[string]any)["port"].(float64)))
					}
					slices.Sort(ports)
					for len(ports) > 0 {
						n := 1
						for n < len(ports) && ports[n] == ports[0]+n {
							n++
						}
						s := strconv.Itoa(ports[0])
						if n > 1 {
							s += "-" + strconv.Itoa(ports[n-1])
						}
						open, ports = append(open, s), ports[n:]
					}
				}
				return open
			},
		}
	})
}
