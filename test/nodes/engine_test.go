//go:build nodes && linux

package nodes

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/docker"
)

// The contract of package cloud, asked of a real engine.
func TestTheContractOnARealEngine(t *testing.T) {
	ask := func(t testing.TB, method, path string) []byte {
		out, err := exec.Command("curl", "-fsg", "-X", method, "--unix-socket", given["SKY_TEST_DOCKER"], "http://d"+path).Output()
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return out
	}
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		engine := docker.NewEngine(given["SKY_TEST_DOCKER"])
		p := docker.New(engine)
		offers, err := p.Offers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in := func(t testing.TB, n cloud.Node, script string) string {
			r, err := engine.Exec(t.Context(), n.Reach.Host, []string{"sh", "-c", script}, nil)
			if err == nil && r.Code != 0 {
				err = errors.New(string(r.Stderr))
			}
			if err != nil {
				t.Error(err)
				return ""
			}
			return string(r.Stdout)
		}
		return cloudtest.Harness{
			Provider: p,
			Spec:     cloud.LaunchSpec{Offer: offers[0], ImageID: "docker:sky-test:1"},
			Another:  func(testing.TB) cloud.Provider { return docker.New(docker.NewEngine(given["SKY_TEST_DOCKER"])) },
			Kill:     func(t testing.TB, n cloud.Node) { ask(t, "DELETE", "/containers/"+n.ID+"?force=1") },
			Halt:     func(t testing.TB, n cloud.Node) { ask(t, "POST", "/containers/"+n.ID+"/stop?t=1") },
			Write:    func(t testing.TB, n cloud.Node, name, data string) { in(t, n, "echo '"+data+"' >/root/"+name) },
			Read: func(t testing.TB, n cloud.Node, name string) string {
				return strings.TrimSpace(in(t, n, "cat /root/"+name))
			},
			Login: func(t testing.TB, n cloud.Node) error {
				in(t, n, "true")
				return nil
			},
			Inventory: func(t testing.TB) []string {
				var out []string
				for _, path := range []string{"/containers/json?all=1", "/networks"} {
					var list []struct {
						ID string `json:"Id"`
					}
					if err := json.Unmarshal(ask(t, "GET", path), &list); err != nil {
						t.Error(err)
					}
					for _, x := range list {
						out = append(out, x.ID)
					}
				}
				slices.Sort(out)
				return out
			},
		}
	})
}
