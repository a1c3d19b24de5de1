//go:build linux

package remote

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

// refuseKeys makes a machine admit nobody and returns what admits the user again.
func refuseKeys(h *sshtest.Server) (again func()) {
	var allowed []ssh.PublicKey
	h.Set(func(k *sshtest.Knobs) { allowed, k.Allow = k.Allow, nil })
	return func() { h.Set(func(k *sshtest.Knobs) { k.Allow = allowed }) }
}

// A machine's sshd may answer before its cloud has told it the user's key.
func TestAMachineThatDoesNotKnowTheKeyYet(t *testing.T) {
	m := newMachines(t, 1)
	again := refuseKeys(m.hosts[0])
	var waited atomic.Value
	ctx := cloud.WithWaitReports(t.Context(), func(what string) {
		waited.Store(what)
		again()
	})
	if err := m.connector().Ensure(ctx, m.c); err != nil {
		t.Fatal(err)
	}
	if what, _ := waited.Load().(string); !strings.HasPrefix(what, "head to boot: 127.0.0.1 refuses the login as u") {
		t.Errorf("what it waited for was called %q", what)
	}
}

// The owner's machines do not boot for us, and keys are not put onto them.
func TestTheOwnersMachinesAreNotWaitedFor(t *testing.T) {
	m := newMachines(t, 1)
	refuseKeys(m.hosts[0])
	m.c.Nodes[0].Reach.OwnKeys = true
	ctx := cloud.WithWaitReports(t.Context(), func(what string) { t.Errorf("waited for %s", what) })
	if err := m.connector().Install(ctx, m.c, Containers{}); !is[*sshconn.AuthError](err) {
		t.Errorf("%v", err)
	}
}

func TestWhoCancelsDoesNotWaitForABoot(t *testing.T) {
	m := newMachines(t, 1)
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.Down = true })
	ctx, cancel := context.WithCancel(t.Context())
	ctx = cloud.WithWaitReports(ctx, func(string) { cancel() })
	began := time.Now()
	err := m.connector().Ensure(ctx, m.c)
	var node *NodeError
	if !errors.As(err, &node) || time.Since(began) > time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
