//go:build nodes && linux

package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rack is a pool of one host.
func rack(w *workstation, user string, extra ...string) {
	w.t.Helper()
	w.write(".sky/ssh_node_pools.yaml", fmt.Sprintf("rack:\n  user: %s\n  identity_file: %s\n%s  hosts: [%s]\n", user, given["SKY_TEST_KEY"], strings.Join(extra, ""), host(3)))
}

// Two clusters of one login run side by side on one host: homes, ports, processes and
// files of one are not the other's, whatever becomes of it.
func TestTwoClustersOnOneHost(t *testing.T) {
	w := newWorkstation(t)
	rack(w, "root")
	w.write("a.txt", "of a")
	w.write("b.txt", "of b")
	for c, cpus := range map[string]string{"a": "1", "b": "0.5"} { // a job takes 0.5
		task := w.write(c+".yaml", "resources:\n  infra: ssh/rack\n  cpus: "+cpus+"\n  memory: 1\nfile_mounts:\n  ~/mine.txt: "+filepath.Join(w.home, c+".txt")+"\nrun: cat ~/mine.txt; echo \"devices=[$CUDA_VISIBLE_DEVICES]\"; echo "+c+" > ~/kept\n")
		w.sky([]string{"of " + c, "devices=[]", "SUCCEEDED"}, "launch", "-y", "-c", c, task)
	}
	if n := len(agents()); n != 2 {
		t.Errorf("%d agents on the host", n)
	}
	w.sky([]string{"in use by clusters a, b", "CPUs"}, "ssh", "up")
	w.sky([]string{"SSH node pools", "rack", "0 of 1 machines, "}, "status")
	// A machine for a cluster alone is not there, and what is left is said.
	out, code := w.run("launch", "-y", "-c", "alone", "--infra", "ssh/rack", "true")
	if code == 0 || !strings.Contains(out, "has cluster a") {
		t.Errorf("exit %d\n%s", code, out)
	}
	out, code = w.run("launch", "-y", "-c", "big", "--infra", "ssh/rack", "--cpus", "2", "true")
	if code == 0 || !strings.Contains(out, "CPUs, ") {
		t.Errorf("exit %d\n%s", code, out)
	}
	// What runs in one goes on when the other's agent is killed, and when the other goes.
	w.sky(nil, "exec", "b", "-d", "--", "sleep 10; cat ~/kept ~/mine.txt")
	w.sky(nil, "exec", "a", "-d", "--", "sleep 1000")
	var killed []int
	for pid, cmd := range processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.Contains(cmd, "agent --home") && strings.Contains(string(env), nodeOf(t, w, "a")) {
			killed = append(killed, pid)
		}
	}
	if len(killed) != 1 {
		t.Fatalf("agents of a: %v", killed)
	}
	kill(t, killed)
	w.sky([]string{"SUCCEEDED"}, "exec", "a", "--", "cat ~/kept")
	w.killServer()
	w.sky(nil, "down", "-y", "a")
	w.sky([]string{"of b", "SUCCEEDED"}, "logs", "b")
	eventually(t, "only b's agent is left", time.Minute, func() bool { return len(agents()) == 1 })
	w.sky([]string{"in use by cluster b"}, "ssh", "up")
	w.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "c", "--infra", "ssh/rack", "--cpus", "0.5", "true")
	// One goes by itself, without a server.
	w.sky(nil, "autostop", "-y", "--down", "-i", "0", "c")
	w.sky(nil, "api", "stop")
	eventually(t, "c's agent has gone", 4*time.Minute, func() bool { return len(agents()) == 1 })
	w.sky([]string{"of b", "SUCCEEDED"}, "exec", "b", "--", "cat ~/mine.txt")
	w.sky(nil, "down", "-y", "b")
	w.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "alone", "--infra", "ssh/rack", "true")
}

// nodeOf is the folder of a cluster's node on the pool's host, as the host knows it.
func nodeOf(t *testing.T, w *workstation, cluster string) string {
	t.Helper()
	records, _ := filepath.Glob(filepath.Join(homeOf(3), ".sky/nodes/h3.d/*/node.json"))
	for _, r := range records {
		if b, _ := os.ReadFile(r); strings.Contains(string(b), `"cluster":"`+cluster) {
			return filepath.Base(filepath.Dir(r))
		}
	}
	t.Fatalf("no node of %s in %v", cluster, records)
	return ""
}
