//go:build unix

package execution_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/agentclient/agenttest"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// large is the size of a file of which a part is on the way when its copy is cut.
const large = 1 << 20

// copying is a task for two nodes with a large file in its working folder and one in a
// file mount. Each is copied to each node over a connection of its own.
func copying(t *testing.T) (yaml string, content []byte) {
	t.Helper()
	content = make([]byte, large)
	rand.Read(content)
	work, data := t.TempDir(), t.TempDir()
	for _, dir := range []string{work, data} {
		if err := os.WriteFile(filepath.Join(dir, "model.bin"), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("num_nodes: 2\nworkdir: %s\nfile_mounts: {~/data: %s}\nresources: {infra: fluffycloud, autostop: 20m}\nrun: sleep 10m\n", work, data), content
}

// cutCopy lets a fault befall the n-th copy of a file, counted from 0, when half of it
// is written. hit reports whether there were so many.
func cutCopy(b *testbed.Bed, n int, fault func(s *testbed.Server, id string, conn net.Conn) error) (hit *atomic.Bool) {
	hit = new(atomic.Bool)
	var copies atomic.Int32
	b.Dialed = func(s *testbed.Server, id string, conn net.Conn) net.Conn {
		return agenttest.CutAfter(conn, large/2, func() error {
			if int(copies.Add(1))-1 != n {
				return nil
			}
			hit.Store(true)
			return fault(s, id, conn)
		})
	}
	return hit
}

// everyCopy runs f in a bubble of its own for each copy that copying's launch makes.
func everyCopy(t *testing.T, f func(t *testing.T, n int)) {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // where hashes of files are kept
	for n := range 4 {            // two files, two nodes
		t.Run(fmt.Sprint("copy ", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, n) })
		})
	}
}

// wantCopied fails the test unless the nodes of "dev" have the files of copying's task,
// whole, and nothing beside them.
func wantCopied(t *testing.T, b *testbed.Bed, content []byte) {
	t.Helper()
	for rank, node := range b.Nodes("dev") {
		for _, dir := range []string{"sky_workdir", "data"} {
			got, err := os.ReadFile(filepath.Join(node.Home(), dir, "model.bin"))
			if err != nil || string(got) != string(content) {
				t.Errorf("node %d has %d bytes in %s, %v", rank, len(got), dir, err)
			}
		}
		if err := filepath.WalkDir(node.Home(), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasPrefix(filepath.Base(path), ".sky-sync-") {
				t.Errorf("node %d still has %s", rank, path)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// wantOneLaunch fails the test unless "dev" is what one launch of copying's task makes.
func wantOneLaunch(t *testing.T, b *testbed.Bed, content []byte) {
	t.Helper()
	wantCopied(t, b, content)
	b.WantMachines("dev running", "dev running")
	c := b.Cluster("dev")
	if c.Status != api.ClusterUp || c.AutostopMinutes != 20 || b.Head("dev").Autostop() == nil {
		t.Errorf("record: %+v", c)
	}
	if times := running(t, b, c); len(times) != 1 {
		t.Errorf("its machines count as running at %+v", times)
	}
	if open, err := b.Store.Attempts().Open(t.Context()); err != nil || len(open) > 0 {
		t.Errorf("attempts that are open: %+v, %v", open, err)
	}
	if jobs := b.Head("dev").Jobs(); len(jobs) != 1 {
		t.Errorf("jobs: %+v", jobs)
	}
}

// A copy whose connection is lost once, with or without either end noticing, goes on
// over another one.
func TestALaunchSurvivesALostConnectionInTheMiddleOfACopy(t *testing.T) {
	for how, fault := range map[string]func(net.Conn) error{
		"reset":  func(conn net.Conn) error { conn.Close(); return syscall.ECONNRESET },
		"silent": func(conn net.Conn) error { agenttest.Lose(conn); return nil },
	} {
		t.Run(how, func(t *testing.T) {
			everyCopy(t, func(t *testing.T, n int) {
				b, r := testbed.New(t), testbed.NewRequest()
				yaml, content := copying(t)
				hit := cutCopy(b, n, func(_ *testbed.Server, _ string, conn net.Conn) error { return fault(conn) })
				got, err := b.Boot(failpoint.Endless).Launch(r, "dev", yaml)
				if err != nil || got.JobID == nil || !hit.Load() {
					t.Fatalf("%+v, %v, cut: %v\n%s", got, err, hit.Load(), r.Out)
				}
				wantOneLaunch(t, b, content)
			})
		})
	}
}

// A server that ends in the middle of a copy leaves the rest to the next one.
func TestALaunchSurvivesTheEndOfItsServerInTheMiddleOfACopy(t *testing.T) {
	everyCopy(t, func(t *testing.T, n int) {
		b, r := testbed.New(t), testbed.NewRequest()
		yaml, content := copying(t)
		hit := cutCopy(b, n, func(s *testbed.Server, _ string, conn net.Conn) error {
			s.Kill()
			conn.Close()
			return failpoint.ErrDead
		})
		if _, err := b.Boot(failpoint.Endless).Launch(r, "dev", yaml); err == nil || !hit.Load() {
			t.Fatalf("%v, cut: %v", err, hit.Load())
		}
		b.WantMachines("dev running", "dev running")
		was := b.Cluster("dev")
		got, err := b.Boot(failpoint.Endless).Launch(r, "dev", yaml)
		if err != nil || got.JobID == nil || *got.JobID != 1 || b.Head("dev").Runs(r.ID) != 1 {
			t.Fatalf("%+v, %v\n%s", got, err, r.Out)
		}
		if c := b.Cluster("dev"); c.Hash != was.Hash {
			t.Error("it was launched anew")
		}
		wantOneLaunch(t, b, content)
	})
}

// A launch that is cancelled in the middle of a copy runs nothing. Its cluster was up
// and stays.
func TestALaunchThatIsCancelledInTheMiddleOfACopyRunsNothing(t *testing.T) {
	cancelled := errors.New("cancelled")
	everyCopy(t, func(t *testing.T, n int) {
		b := testbed.New(t)
		yaml, content := copying(t)
		s := b.Boot(failpoint.Endless)
		ctx, cancel := context.WithCancelCause(s.Context())
		defer cancel(nil)
		cutCopy(b, n, func(*testbed.Server, string, net.Conn) error { cancel(cancelled); return nil })
		_, err := s.Executor.Launch(ctx, s.Call(testbed.NewRequest()), api.LaunchBody{Task: yaml, ClusterName: "dev"})
		if !errors.Is(err, cancelled) {
			t.Errorf("got %v", err)
		}
		if c := b.Cluster("dev"); c == nil || c.Status != api.ClusterUp || len(b.Head("dev").Jobs()) > 0 {
			t.Fatalf("record: %+v", c)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", yaml); err != nil {
			t.Fatal(err)
		}
		wantOneLaunch(t, b, content)
	})
}

// A launch whose files cannot be copied, since an agent or its machine dies in the
// middle, says which node it was, that the cluster stays, and how to give it back. The
// next launch uses what is left of it.
func TestALaunchWhoseNodeIsLostInTheMiddleOfACopySaysSo(t *testing.T) {
	for how, lose := range map[string]func(b *testbed.Bed, id string) error{
		"agent":   func(b *testbed.Bed, id string) error { b.Node(id).Crash(); return nil },
		"machine": func(b *testbed.Bed, id string) error { defer b.Node(id); return b.Cloud.Kill(id, "taken back") },
	} {
		t.Run(how, func(t *testing.T) {
			everyCopy(t, func(t *testing.T, n int) {
				b := testbed.New(t)
				yaml, content := copying(t)
				s := b.Boot(failpoint.Endless)
				var node string
				cutCopy(b, n, func(_ *testbed.Server, id string, _ net.Conn) error { node = id; return lose(b, id) })
				began := time.Now()
				_, err := s.Launch(testbed.NewRequest(), "dev", yaml)
				e, ok := errors.AsType[*api.Error](err)
				if !ok || e.Type != api.ErrRuntime || !strings.Contains(e.Hint, "sky down dev") {
					t.Fatalf("got %v (%+v)", err, e)
				}
				was := b.Cluster("dev")
				for rank, name := range []string{"head", "worker1"} {
					if (was.Nodes[rank].ID == node) != strings.Contains(e.Message, name) {
						t.Errorf("%s was lost, the error is %v", node, e)
					}
				}
				if took := time.Since(began); took > soon {
					t.Errorf("the launch took %v", took)
				}
				if was.Status != api.ClusterUp {
					t.Errorf("record: %+v", was)
				}
				b.Dialed = nil
				if _, err := s.Launch(testbed.NewRequest(), "dev", yaml); err != nil {
					t.Fatal(err)
				}
				if c := b.Cluster("dev"); c.Hash != was.Hash {
					t.Error("it was launched anew")
				}
				wantCopied(t, b, content)
				b.WantMachines("dev running", "dev running")
				if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
					t.Fatal(err)
				}
				b.WantNothingLeft("dev")
			})
		})
	}
}
