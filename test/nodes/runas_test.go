//go:build nodes && linux

package nodes

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const ownHost = 3

// asRoot runs a command as root on a host.
func asRoot(t *testing.T, i int, command string) string {
	t.Helper()
	c := exec.Command("timeout", "60", "ssh", "-n", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-i", given["SKY_TEST_KEY"], "root@"+host(i), command)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// accounted is a user's installation with a pool of one host, where clusters run as an
// account and sky logs in as pool.
func accounted(t *testing.T, account string) *workstation {
	w := newWorkstation(t)
	w.write(".sky/ssh_node_pools.yaml", fmt.Sprintf("rack:\n  user: pool\n  identity_file: %s\n  run_as: submitter\n  accounts: {root: %s}\n  hosts: [%s]\n", given["SKY_TEST_KEY"], account, host(ownHost)))
	return w
}

// ofAccounts are the processes of nodes in the accounts' homes.
func ofAccounts(account string) map[int]string {
	all := marked("SKY_NODE=/home/" + account + "/")
	for pid := range all {
		if !onOurs(fmt.Sprint("/proc/", pid)) {
			delete(all, pid)
		}
	}
	return all
}

func agentOf(t *testing.T, account string) int {
	t.Helper()
	for pid, cmd := range ofAccounts(account) {
		if strings.Contains(cmd, "agent --home") {
			return pid
		}
	}
	t.Fatalf("no agent of %s: %v", account, ofAccounts(account))
	return 0
}

// Two people share a host on which sky logs in as neither. What each runs is their own
// account's, by a rule of sudo for a shell as that account and nothing else.
func TestClustersRunAsTheirUsersUnixAccounts(t *testing.T) {
	a, b := accounted(t, "ada"), accounted(t, "bob")
	const left = "find /home/ada /home/bob /home/pool -mindepth 1 -not -path '*/.ssh*' -printf '%u %p\\n'"
	t.Cleanup(func() {
		asRoot(t, ownHost, "rm -f /etc/sudoers.d/sky-bob")
		if files := asRoot(t, ownHost, left); files != "" {
			t.Errorf("left on the host:\n%s", files)
		}
		if p := ofAccounts(""); len(p) > 0 {
			t.Errorf("processes are left: %v", p)
		}
	})
	launch := func(name string, task string) []string {
		return []string{"launch", "-y", "-c", name, "--infra", "ssh/rack", "--cpus", "0.5", "--memory", "1", "--", task}
	}

	// Not allowed: nothing runs, as nobody, and the message allows it.
	out, code := b.run(launch("b", "touch /tmp/never")...)
	if code == 0 || !strings.Contains(out, "does not let its login pool run commands as bob") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	if files := asRoot(t, ownHost, left+"; ls /tmp/never 2>/dev/null; true"); files != "" {
		t.Errorf("it left:\n%s", files)
	}
	allow := regexp.MustCompile(`echo 'pool ALL=.*?/etc/sudoers\.d/sky-bob`).FindString(strings.Join(strings.Fields(out), " "))
	if allow == "" {
		t.Fatalf("no command in:\n%s", out)
	}
	asRoot(t, ownHost, allow+" && visudo -cqf /etc/sudoers.d/sky-bob")

	a.write("proj/data.txt", "of ada\n")
	a.write("more.txt", "mounted\n")
	task := a.write("task.yaml", "workdir: "+a.home+"/proj\nresources: {infra: ssh/rack, cpus: 0.5, memory: 1}\nfile_mounts: {~/more.txt: "+a.home+"/more.txt}\n"+
		"setup: id -un > ~/set-up-by\nrun: |\n  echo \"$(id -un) $USER $(cat ~/set-up-by data.txt ~/more.txt | tr '\\n' ' ')in $HOME\"\n  sudo -n -l >/dev/null 2>&1; echo secret > ~/kept\n")
	a.sky([]string{"ada ada ada of ada mounted in /home/ada/.sky/nodes/h3.d/", "SUCCEEDED"}, "launch", "-y", "-c", "a", task)
	b.sky([]string{"bob in /home/bob/.sky/nodes/", "closed", "SUCCEEDED"},
		launch("b", "echo $(id -un) in $HOME; cat /home/ada/.sky/nodes/*/*/home/kept /home/ada/.sky/nodes/*/*/node.json || echo closed")...)
	// Everything of a cluster is its account's, but for the list of who has what.
	for _, line := range strings.Split(strings.TrimSpace(asRoot(t, ownHost, left)), "\n") {
		owner, path, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(path, "/home/"+owner+"/") {
			t.Errorf("%s belongs to %s", path, owner)
		}
	}
	if modes := asRoot(t, ownHost, "stat -c %a /home/*/.sky/nodes/*/*/home | sort -u"); modes != "700\n" {
		t.Errorf("homes of nodes are open: %s", modes)
	}
	if out, code := b.run(launch("big", "true")[:6]...); code == 0 || !strings.Contains(out, "of another installation") {
		t.Errorf("a host with two clusters is given as a whole: exit %d\n%s", code, out)
	}
	b.sky([]string{"in use by clusters"}, "ssh", "up")

	// Whatever reaches the cluster reaches it as the account.
	a.sky([]string{"ada again", "SUCCEEDED"}, "exec", "a", "--", "echo $(id -un) again")
	a.sky([]string{"ada in a shell"}, "ssh", "a", "--", "echo $(id -un) in a shell")
	if out := a.atHome("ssh a id -un"); out != "ada\n" {
		t.Errorf("ssh a said %q", out)
	}
	a.sky([]string{"ada again"}, "logs", "a", "2")
	a.sky(nil, "exec", "a", "-d", "--", "sleep 1000")
	a.sky(nil, "cancel", "-y", "a", "3")
	a.sky([]string{"CANCELLED"}, "queue", "a")

	// An agent that dies and a server that dies are replaced as ever.
	a.sky(nil, "exec", "a", "-d", "--", "sleep 8; echo $(id -un) over")
	agent := agentOf(t, "ada")
	kill(t, []int{agent})
	a.killServer()
	a.sky([]string{"ada over", "SUCCEEDED"}, "logs", "a")
	if next := agentOf(t, "ada"); next == agent {
		t.Error("the agent was not killed")
	} else if status := asRoot(t, ownHost, "ps -o user= -C sky | sort -u"); strings.Contains(status, "root") || strings.Contains(status, "pool") {
		t.Errorf("agents run as %s", status)
	}

	// A managed job has a cluster of its own there.
	b.sky(nil, "down", "-y", "b")
	b.sky([]string{"bob works"}, "jobs", "launch", "-y", "-n", "work", "--infra", "ssh/rack", "--cpus", "0.5", "--memory", "1", "--", "echo $(id -un) works")
	eventually(t, "the job's cluster is given back", 2*time.Minute, func() bool { return len(ofAccounts("bob")) == 0 })

	// A cluster goes by itself, without a server, and is off the list when somebody looks.
	a.sky(nil, "autostop", "-y", "--down", "-i", "0", "a")
	a.sky(nil, "api", "stop")
	eventually(t, "ada's agent has gone", 4*time.Minute, func() bool { return len(ofAccounts("ada")) == 0 })
	b.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "alone", "--infra", "ssh/rack", "true")

	// What was allowed is not any more: the cluster is not lost, and not given up.
	asRoot(t, ownHost, "mv /etc/sudoers.d/sky-bob /root/.ssh/sky-bob")
	if out, _ := b.run("down", "-y", "alone"); !strings.Contains(out, "failed") || !strings.Contains(out, "/etc/sudoers.d/sky-bob") {
		t.Errorf("down said\n%s", out)
	}
	if b.status("alone") == "" {
		t.Error("the cluster is not known any more")
	}
	asRoot(t, ownHost, "mv /root/.ssh/sky-bob /etc/sudoers.d/sky-bob")
	b.sky(nil, "down", "-y", "alone")
	if n, _ := strconv.Atoi(strings.TrimSpace(asRoot(t, ownHost, "find /home -name .sky | wc -l"))); n != 0 {
		t.Errorf("%d folders are left", n)
	}
}
