//go:build nodes && linux

package nodes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The agents carry the deadline: clusters of every kind stop and end themselves
// while no server is there, and the next server finds out.
func TestClustersGiveThemselvesBackWithoutAServer(t *testing.T) {
	w := newWorkstation(t)
	f := w.rents()
	defer func() {
		if t.Failed() {
			t.Logf("containers: %+v", ours(t))
		}
	}()
	in := func(infra string) string {
		return w.write(infra[:3]+".yaml", "resources:\n  infra: "+infra+"\nnum_nodes: 2\nrun: echo kept > ~/kept\n")
	}
	container := w.write("container.yaml", image+"num_nodes: 2\nrun: echo kept > ~/kept\n")
	for _, c := range []struct {
		name, task string
		down       bool
	}{
		{"cs", container, false},
		{"cd", container, true},
		{"fs", in("fluffycloud"), false},
		{"fd", in("fluffycloud"), true},
		{"hd", in("ssh/lab"), true},
	} {
		args := []string{"launch", "-y", "-d", "-c", c.name, "-i", "1"}
		if c.down {
			args = append(args, "--down")
		}
		w.sky(nil, append(args, c.task)...)
	}
	w.killServer()

	all := func(state string, of []string, n int) bool {
		return len(of) == n && !slices.ContainsFunc(of, func(s string) bool { return s != state })
	}
	// A head that lost a worker's answer finds out within seconds that it is gone.
	const limit = 4 * time.Minute
	eventually(t, "rented machines are off and gone", limit, func() bool {
		return all("stopped", f.instances("fs"), 2) && all("terminated", f.instances("fd"), 2)
	})
	eventually(t, "containers are off", limit, func() bool { return all("exited", containerStates(t), 4) })
	eventually(t, "one's own machines are free", limit, func() bool {
		for i := 1; i <= 4; i++ {
			if _, err := os.Stat(filepath.Join(homeOf(i), ".sky")); err == nil {
				return false
			}
		}
		return len(processes()) == 0
	})

	// A server comes back.
	for name, want := range map[string]string{"cs": "STOPPED", "cd": "", "fs": "STOPPED", "fd": "", "hd": ""} {
		if s := w.status(name); s != want {
			t.Errorf("%s is %q, want %q", name, s, want)
		}
	}
	if n := len(containerStates(t)); n != 2 {
		t.Errorf("%d containers are left, want those of the stopped cluster", n)
	}
	for _, name := range []string{"cs", "fs"} {
		w.sky(nil, "start", "-y", name)
		if out := w.sky([]string{"SUCCEEDED"}, "exec", name, "--num-nodes", "2", "--", "cat ~/kept"); strings.Count(out, "kept") < 2 {
			t.Errorf("%s has lost its disks:\n%s", name, out)
		}
		w.sky(nil, "down", "-y", name)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
