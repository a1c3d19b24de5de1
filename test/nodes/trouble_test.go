//go:build nodes && linux

package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What users meet: each says what is wrong, where and what to do, and leaves
// nothing on any machine and no cluster on record.
func TestLoginsThatDoNotWork(t *testing.T) {
	w := newWorkstation(t)
	for name, args := range map[string][]string{
		"stranger": {"-N", ""},
		"locked":   {"-N", "secret"},
	} {
		args = append([]string{"-q", "-t", "ed25519", "-f", filepath.Join(w.home, name)}, args...)
		if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	nobody := host(1)[:strings.LastIndex(host(1), ".")] + ".77"
	for _, tt := range []struct {
		name, pool string
		says       []string
	}{
		{"a key that the machine does not know", "user: root\n  identity_file: " + w.home + "/stranger\n  hosts: [" + host(1) + "]",
			[]string{host(1) + " refuses the login as root", w.home + "/stranger", "authorized_keys"}},
		{"a user that there is not", "user: nosuchuser\n  identity_file: " + given["SKY_TEST_KEY"] + "\n  hosts: [" + host(1) + "]",
			[]string{host(1) + " refuses the login as nosuchuser", "another user or key"}},
		{"a key with a passphrase", "user: root\n  identity_file: " + w.home + "/locked\n  hosts: [" + host(1) + "]",
			[]string{"needs a passphrase", "ssh-add"}},
		{"a key that is not there", "user: root\n  identity_file: " + w.home + "/absent\n  hosts: [" + host(1) + "]",
			[]string{w.home + "/absent", "no such file"}},
		{"a machine that is off", "user: root\n  identity_file: " + given["SKY_TEST_KEY"] + "\n  hosts: [" + nobody + "]",
			[]string{nobody, "connecting"}},
		{"a port on which nobody listens", "user: root\n  port: 23\n  identity_file: " + given["SKY_TEST_KEY"] + "\n  hosts: [" + host(1) + "]",
			[]string{host(1) + ":23", "connection refused"}},
		{"a jump host that refuses", "user: root\n  identity_file: " + given["SKY_TEST_KEY"] + "\n  proxy_jump: nosuchuser@" + host(1) + "\n  hosts: [" + host(6) + "]",
			[]string{host(1) + " refuses the login as nosuchuser"}},
	} {
		w.write(".sky/ssh_node_pools.yaml", "lab:\n  "+tt.pool+"\n")
		out, code := w.run("launch", "-y", "-c", "x", "--infra", "ssh/lab", "--", "true")
		if code == 0 {
			t.Errorf("%s: it was launched", tt.name)
		}
		check, _ := w.run("check", "ssh")
		for _, text := range tt.says {
			if !strings.Contains(check, text) {
				t.Errorf("%s: %q is missing in what check says:\n%s", tt.name, text, check)
			}
		}
		if !strings.Contains(out, "ssh") {
			t.Errorf("%s: the launch says:\n%s", tt.name, out)
		}
		if s := w.status("x"); s != "" {
			t.Errorf("%s: there is a cluster, %s", tt.name, s)
		}
		w.nothingLeft()
	}
}

func TestTheDiskOfANodeIsFull(t *testing.T) {
	w := newWorkstation(t)
	w.write(".sky/ssh_node_pools.yaml", "small:\n  user: root\n  identity_file: "+given["SKY_TEST_KEY"]+"\n  hosts: ["+host(5)+"]\n")
	out, code := w.run("launch", "-y", "-c", "x", "--infra", "ssh/small", "--", "true")
	if code == 0 || !strings.Contains(out, "the disk of "+host(5)+" is full") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if s := w.status("x"); s != "" {
		w.sky(nil, "down", "-y", "x")
	}
	w.nothingLeft()
}

// reboot switches a host off and on: all its processes end.
func reboot(t *testing.T, i int) {
	t.Helper()
	if out, err := exec.Command("sh", "setup.sh", "reboot", place, fmt.Sprint(i)).CombinedOutput(); err != nil {
		t.Errorf("rebooting h%d: %v\n%s", i, err, out)
	}
}

// Half of the machines reboot while a launch is at work on them: it goes on, or
// it says which machine was lost; the next one succeeds either way.
func TestMachinesRebootDuringALaunch(t *testing.T) {
	w := newWorkstation(t)
	var launch sync.WaitGroup
	launch.Go(func() {
		out, code := w.run("launch", "-y", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "4", "--", "echo first")
		if code != 0 && !strings.Contains(out, host(2)) && !strings.Contains(out, host(3)) && !strings.Contains(out, "worker") && !strings.Contains(out, "head") {
			t.Errorf("exit %d, and no machine is named\n%s", code, out)
		}
	})
	eventually(t, "the launch is at work", 2*time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(homeOf(2), ".sky"))
		return err == nil
	})
	reboot(t, 2)
	reboot(t, 3)
	launch.Wait()
	w.sky([]string{"second 0", "second 3", "SUCCEEDED"}, "launch", "-y", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "4", "--", "echo second $SKYPILOT_NODE_RANK")
	// Nor do those of a cluster that runs: its agents are started again.
	reboot(t, 2)
	reboot(t, 3)
	eventually(t, "the agents are back", 2*time.Minute, func() bool { return len(agents()) == 4 && w.status("x") == "UP" })
	w.sky([]string{"third 0", "third 3"}, "exec", "x", "--num-nodes", "4", "--", "echo third $SKYPILOT_NODE_RANK")
}

func TestAClusterWhoseMachineIsCutOff(t *testing.T) {
	w := newWorkstation(t)
	w.sky(nil, "launch", "-y", "-d", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "4", "--", "sleep 1000")
	set := func(state string) {
		t.Helper()
		if out, err := exec.Command("ip", "link", "set", link(2), state).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	set("down")
	t.Cleanup(func() { set("up") })
	// Silence is no proof: nothing is given up, and down does not pretend.
	if out, _ := w.run("down", "-y", "x"); !strings.Contains(out, "failed") || !strings.Contains(out, host(2)) {
		t.Errorf("down says:\n%s", out)
	}
	set("up")
	eventually(t, "it can be given back", 2*time.Minute, func() bool {
		w.run("down", "-y", "x")
		return w.status("x") == ""
	})
	w.nothingLeft()
}
