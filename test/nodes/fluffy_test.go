//go:build nodes && linux

package nodes

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fluffy is a cloud of a user's own, whose machines are processes with an sshd.
type fluffy struct {
	w   *workstation
	dir string
}

// rents gives the user an account on a cloud of its own.
func (w *workstation) rents() *fluffy {
	w.t.Helper()
	// Not below the home folder: a machine's path must stay short for sockets.
	dir, err := os.MkdirTemp("", "fluffy")
	if err != nil {
		w.t.Fatal(err)
	}
	f := &fluffy{w: w, dir: dir}
	note := filepath.Join(place, filepath.Base(dir)+".fluffy") // for "setup.sh down"
	if err := os.WriteFile(note, []byte(dir+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	serve := f.command("serve", "--dir", dir, "--listen", "127.0.0.1:0", "--boot", "0s", "--credentials", filepath.Join(w.home, ".fluffycloud", "credentials"))
	out, err := serve.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.ends = append(w.ends, func() {
		serve.Process.Kill()
		serve.Wait()
		if out, err := f.command("destroy", "--dir", dir).CombinedOutput(); err != nil {
			w.t.Errorf("destroying the cloud: %v: %s", err, out)
		}
		os.RemoveAll(dir)
		os.Remove(note)
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		w.t.Fatalf("fluffycloud said %q: %v", line, err)
	}
	return f
}

func (f *fluffy) command(args ...string) *exec.Cmd {
	c := exec.Command(fluffycloud, args...)
	c.Env = f.w.env
	return c
}

// instances are the states of all instances that carry the name of a cluster,
// in the order of their creation.
func (f *fluffy) instances(cluster string) []string {
	f.w.t.Helper()
	out, err := f.command("admin", "--dir", f.dir, "GET", "inventory").Output()
	var inv struct {
		Instances []struct {
			Name, State string
		}
	}
	if err == nil {
		err = json.Unmarshal(out, &inv)
	}
	if err != nil {
		f.w.t.Fatalf("inventory: %v: %s", err, out)
	}
	var states []string
	for _, i := range inv.Instances {
		if strings.HasPrefix(i.Name, cluster+"-") {
			states = append(states, i.State)
		}
	}
	return states
}

// left are the cloud's processes of machines, and what it has on record besides
// terminated instances.
func (f *fluffy) left() []string {
	f.w.t.Helper()
	out, err := f.command("admin", "--dir", f.dir, "GET", "inventory").Output()
	var inv struct {
		Instances []struct{ Name, State string }
		Firewalls []struct{ Name string }
	}
	if err == nil {
		err = json.Unmarshal(out, &inv)
	}
	if err != nil {
		f.w.t.Fatalf("inventory: %v: %s", err, out)
	}
	var left []string
	for _, i := range inv.Instances {
		if i.State != "terminated" {
			left = append(left, i.State+" instance "+i.Name)
		}
	}
	for _, x := range inv.Firewalls {
		left = append(left, "firewall "+x.Name)
	}
	for _, cmd := range marked("FLUFFYCLOUD_MACHINE=" + f.dir) {
		left = append(left, "process "+cmd)
	}
	return left
}

// Twelve machines are more than the server likes to serve: it brings the agent
// to four, they bring it to the others, and nobody brings it twice.
func TestTheAgentSpreadsFromNodeToNode(t *testing.T) {
	w := newWorkstation(t)
	f := w.rents()
	w.sky([]string{"rank 0 of 12", "rank 11 of 12", "SUCCEEDED"}, "launch", "-y", "-c", "many", "--infra", "fluffycloud", "--cpus", "2+", "--num-nodes", "12", "--",
		"echo rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES")
	brought := func() (server, nodes int) {
		for line := range strings.Lines(w.serverLog()) {
			switch {
			case !strings.Contains(line, "agent brought onto a node"):
			case strings.Contains(line, "from=server"):
				server++
			default:
				nodes++
			}
		}
		return server, nodes
	}
	if server, nodes := brought(); server != 4 || nodes != 8 {
		t.Errorf("the server brought the agent to %d nodes, nodes to %d", server, nodes)
	}
	w.sky([]string{"again"}, "launch", "-y", "-c", "many", "--", "echo again")
	w.sky(nil, "stop", "-y", "many")
	w.sky(nil, "start", "-y", "many")
	w.sky([]string{"once more"}, "exec", "many", "--", "echo once more")
	if server, nodes := brought(); server != 4 || nodes != 8 {
		t.Errorf("in the end the server has brought the agent to %d nodes, nodes to %d", server, nodes)
	}
	w.sky(nil, "down", "-y", "many")
	if left := f.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
