//go:build unix

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/internal/controller"
)

// With serve.balancer: beside the server has no balancer of its own, and leaves nothing
// of one.
func TestBalancersThatRunBesideTheServer(t *testing.T) {
	for text, own := range map[string]bool{"serve: {balancer: beside}\n": false, "serve: {balancer: server}\n": true, "{}\n": true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, text)
			ctx, stop := context.WithCancel(b.ctx)
			stop() // one that runs ends at once
			b.d.balance(ctx)
			if _, err := os.Stat(filepath.Join(b.d.dir, "balancer")); (err == nil) != own {
				t.Errorf("%s: a balancer here: %t", text, err == nil)
			}
		})
	}
}

// A server that looks after services for another one lets balancers listen on its
// machine, and shows the address of that.
func TestWhereServicesOfAControllerAre(t *testing.T) {
	t.Setenv(controller.EnvListen, "10.0.0.5")
	t.Setenv(controller.EnvHost, "203.0.113.7")
	synctest.Test(t, func(t *testing.T) {
		d := newBed(t, "{}\n").d
		if host, at := d.balancerHost(), d.serviceEndpoint(30001, true); host != "10.0.0.5" || at != "https://203.0.113.7:30001" || d.services.LastPort != controller.LastPort {
			t.Errorf("they listen on %s up to %d, and are said to be at %s", host, d.services.LastPort, at)
		}
	})
}
