//go:build nodes && linux

package nodes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAClusterOnOnesOwnMachines(t *testing.T) {
	w := newWorkstation(t)
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

	// The user's own ssh knows the nodes, and checks their host keys.
	if out := w.atHome("ssh x-worker1 hostname"); !strings.HasPrefix(out, "h") {
		t.Errorf("ssh x-worker1 said %q", out)
	}
	if out := w.atHome("ssh -G x | grep -i stricthostkeychecking"); !strings.Contains(out, "true") && !strings.Contains(out, "yes") {
		t.Errorf("host keys are not checked: %q", out)
	}
	if _, err := exec.LookPath("rsync"); err == nil {
		w.atHome("rsync -a proj/ x:copied/ && rsync -a x:copied/data.txt back1")
	}
	w.atHome("scp -q proj/data.txt x:sent && scp -q x:sent back2 && ssh x rm -rf sent copied")
	for _, name := range []string{"back1", "back2"} {
		if b, err := os.ReadFile(filepath.Join(w.home, name)); string(b) != "payload\n" && (name == "back2" || err == nil) {
			t.Errorf("%s is %q, %v", name, b, err)
		}
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

// atHome runs a command line in the user's home folder. OpenSSH takes home from
// the table of users, so for it that folder is where root's is.
func (w *workstation) atHome(line string) string {
	w.t.Helper()
	script := `mount --make-rprivate / && mount --bind "$HOME" /root && cd /root && ` + line
	c := exec.Command("timeout", "120", "unshare", "--mount", "sh", "-c", script)
	c.Env = w.env
	out, err := c.CombinedOutput()
	if err != nil {
		w.t.Errorf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func TestAMachineBehindAnother(t *testing.T) {
	w := newWorkstation(t)
	w.write(".sky/ssh_node_pools.yaml", "far:\n  user: root\n  identity_file: "+given["SKY_TEST_KEY"]+"\n  proxy_jump: root@"+host(1)+"\n  hosts: ["+host(6)+"]\n")
	w.sky([]string{"on h6", "SUCCEEDED"}, "launch", "-y", "-c", "x", "--infra", "ssh/far", "--", "echo on $(hostname)")
	w.sky([]string{"again"}, "exec", "x", "--", "echo again")
	if out := w.atHome("ssh x hostname"); out != "h6\n" {
		t.Errorf("ssh x said %q", out)
	}
	w.sky(nil, "down", "-y", "x")
	w.nothingLeft()
}

func TestAgentsThatDieAreStartedAgainAndJobsGoOn(t *testing.T) {
	w := newWorkstation(t)
	w.sky(nil, "launch", "-y", "-d", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "2", "--", "echo begun; sleep 20; echo over $SKYPILOT_NODE_RANK")
	eventually(t, "both ranks run", time.Minute, func() bool {
		out, _ := w.run("logs", "x", "--no-follow")
		return strings.Count(out, "begun") == 2
	})
	before := agents()
	kill(t, before)
	w.sky([]string{"begun"}, "logs", "x", "--no-follow") // whoever asks waits for the next one
	eventually(t, "agents are back", time.Minute, func() bool {
		now := agents()
		return w.status("x") == "UP" && len(now) == 2 && !slices.Contains(now, before[0]) && !slices.Contains(now, before[1])
	})
	w.sky([]string{"over 0", "over 1", "SUCCEEDED"}, "logs", "x")
}

func TestTheServerDiesAndConnectsAgain(t *testing.T) {
	w := newWorkstation(t)
	w.sky(nil, "launch", "-y", "-c", "x", "--infra", "ssh/lab", "--", "true")
	w.sky(nil, "api", "stop")
	w.sky([]string{"still here"}, "exec", "x", "--", "echo still here")
}

func TestAChangedHostKeyIsRefused(t *testing.T) {
	w := newWorkstation(t)
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
	a, b := newWorkstation(t), newWorkstation(t)
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
