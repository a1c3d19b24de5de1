package controller

import (
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// The cluster of services has the ports open at which they are reached, from the time
// that it is made.
func TestTheServeControllerOpensPorts(t *testing.T) {
	c := configured(t, "serve: {controller: {mode: cluster, resources: {cpus: 3}}}\njobs: {controller: {resources: {cpus: 7}}}\n")
	text, _, err := Services.plan(c, false)
	if err != nil || !strings.Contains(text, `"ports":["30001-30020"]`) || !strings.Contains(text, `"cpus":3`) {
		t.Errorf("%s, %v", text, err)
	}
	if text, _, err := Jobs.plan(c, false); err != nil || strings.Contains(text, "ports") || !strings.Contains(text, `"cpus":7`) {
		t.Errorf("of jobs: %s, %v", text, err)
	}
	if text, _, err := Services.plan(c, true); err != nil || strings.Contains(text, "ports") {
		t.Errorf("one that exists is as it is: %s, %v", text, err)
	}
}

// What one looks after says nothing about the other.
func TestEachControllerHasAModeOfItsOwn(t *testing.T) {
	c := configured(t, "serve: {controller: {mode: cluster}, host: chat.example.com, balancer: beside}\n")
	of := func(k *Kind) *Controller {
		return New(Deps{Kind: k, Self: state.User{ID: "1"}, Config: func() *config.Config { return c }})
	}
	if !of(Services).Wanted(nil, config.Admin) || of(Jobs).Wanted(nil, config.Admin) {
		t.Error("the mode of services is cluster, that of jobs is not")
	}
	taken := configured(t, string(c.ForController()))
	if taken.ControllerOn("serve", nil, config.Admin) != config.OnServer || taken.Text("serve", "host") != "" || taken.Text("serve", "balancer") != "" {
		t.Errorf("what is about this server is taken along:\n%s", c.ForController())
	}
	for _, k := range []*Kind{Jobs, Services} {
		if name := of(k).Name(); Reserved(name) != strings.ToLower(k.what) {
			t.Errorf("%s is reserved for %q", name, Reserved(name))
		}
	}
}

// Without a controller, and with one that stopped, there are no services.
func TestAServeControllerThatHasNothingToDo(t *testing.T) {
	c := New(Deps{Kind: Services})
	stopped, unreachable := c.notUp(&state.Cluster{Name: "x", Status: api.ClusterStopped}, ""), c.notUp(&state.Cluster{Name: "x", Status: api.ClusterInit}, "")
	for _, tt := range []struct {
		err  error
		want bool
	}{{Services.none, true}, {stopped, true}, {unreachable, false}, {errors.New("no answer"), false}, {nil, false}} {
		if got := c.nothing(tt.err); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}
	if New(Deps{Kind: Jobs}).nothing(stopped) {
		t.Error("a stopped jobs controller keeps its history")
	}
}
