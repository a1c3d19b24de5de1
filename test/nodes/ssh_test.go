//go:build nodes && linux

package nodes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAClusterOnOnesOwnMachines(t *testing.T) {
	w := newWorld(t)
	w.write("proj/data.txt", "payload\n")
	task := w.write("task.yaml", `
num_nodes: 3
workdir: `+w.home+`/proj
setup: echo ready > ~/setup-done
run: |
  echo "rank $SKYPILOT_NODE_RANK on $(hostname) says $GREETING"
  cat data.txt ~/setup-done
`)
	w.sky([]string{"rank 0 on h", "rank 2 on h", "says from h", "payload", "ready", "SUCCEEDED"}, "launch", "-y", "-c", "x", "--infra", "ssh/lab", task)
	if n := len(agents()); n != 3 {
		t.Errorf("%d agents run", n)
	}
	w.sky([]string{"again"}, "exec", "x", "--", "echo again")
	w.sky([]string{"again"}, "logs", "x", "2")
	w.sky([]string{"SUCCEEDED"}, "queue", "x")

	// The user's own ssh knows the nodes and checks their host keys.
	ssh := exec.Command("ssh", "-F", filepath.Join(w.home, ".sky/generated/ssh/x"), "-o", "BatchMode=yes", "x-worker1", "hostname")
	if out, err := ssh.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "h") {
		t.Errorf("ssh x-worker1: %v\n%s", err, out)
	}
	include, err := os.ReadFile(filepath.Join(w.home, ".ssh/config"))
	if err != nil || !strings.Contains(string(include), "Include ~/.sky/generated/ssh/*") {
		t.Errorf("%q, %v", include, err)
	}

	// One machine is left: two are refused, saying who has the others.
	out, code := w.run("launch", "-y", "-c", "y", "--infra", "ssh/lab", "--num-nodes", "2", "--", "true")
	if code == 0 || !strings.Contains(out, "has cluster x") {
		t.Errorf("exit %d\n%s", code, out)
	}

	w.sky(nil, "down", "-y", "x")
	w.nothingLeft()
	if _, err := os.Stat(filepath.Join(w.home, ".sky/generated/ssh/x")); err == nil {
		t.Error("the entry for ssh is left")
	}
}

func TestAgentsThatDieAreStartedAgainAndJobsGoOn(t *testing.T) {
	w := newWorld(t)
	w.sky(nil, "launch", "-y", "-d", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "2", "--", "echo begun; sleep 8; echo over $SKYPILOT_NODE_RANK")
	eventually(t, "both ranks run", 20*time.Second, func() bool {
		out, _ := w.run("logs", "x", "--no-follow")
		return strings.Count(out, "begun") == 2
	})
	kill(t, agents())
	eventually(t, "agents are back", 30*time.Second, func() bool { return w.status("x") == "UP" && len(agents()) == 2 })
	w.sky([]string{"over 0", "over 1", "SUCCEEDED"}, "logs", "x")
}

func TestTheServerDiesAndConnectsAgain(t *testing.T) {
	w := newWorld(t)
	w.sky(nil, "launch", "-y", "-c", "x", "--infra", "ssh/lab", "--", "true")
	w.sky(nil, "api", "stop")
	w.sky([]string{"still here"}, "exec", "x", "--", "echo still here")
}

func TestAMachineGivesItselfBack(t *testing.T) {
	w := newWorld(t)
	w.sky(nil, "launch", "-y", "-d", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "2", "--down", "-i", "1", "--", "true")
	eventually(t, "the cluster is gone", 3*time.Minute, func() bool { return w.status("x") == "" })
	w.nothingLeft()
}

func TestAChangedHostKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.sky(nil, "launch", "-y", "-c", "x", "--infra", "ssh/lab", "--", "true")
	w.sky(nil, "down", "-y", "x")
	w.sky(nil, "api", "stop")
	known := filepath.Join(w.home, ".sky/known_hosts")
	b, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	// Every host shows what another one should.
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var swapped []string
	for i, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		_, key, _ := strings.Cut(lines[(i+1)%len(lines)], " ")
		swapped = append(swapped, name+" "+key)
	}
	os.WriteFile(known, []byte(strings.Join(swapped, "\n")+"\n"), 0o600)
	if out, code := w.run("launch", "-y", "-c", "y", "--infra", "ssh/lab", "--", "true"); code == 0 {
		t.Errorf("it was launched:\n%s", out)
	}
	w.sky([]string{"the host key of root@", "has changed", known}, "check")
	os.Remove(known)
}

func TestTheSameHostInTwoInstallations(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	a.sky(nil, "launch", "-y", "-d", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "3", "--", "sleep 100")
	b.sky(nil, "launch", "-y", "-d", "-c", "x", "--infra", "ssh/lab", "--", "sleep 100")
	out, code := b.run("launch", "-y", "-c", "y", "--infra", "ssh/lab", "--", "true")
	if code == 0 || !strings.Contains(out, "of another installation") {
		t.Errorf("exit %d\n%s", code, out)
	}
	b.sky(nil, "down", "-y", "x")
	if n := len(agents()); n != 3 {
		t.Errorf("%d agents of the other installation are left", n)
	}
	a.sky(nil, "down", "-y", "x")
}
