//go:build nodes && linux

package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// withEngines are the hosts that have a container engine.
var withEngines = []int{16, 17}

// enginePool makes the pool "dock" of them.
func (w *workstation) enginePool() {
	w.t.Helper()
	w.write(".sky/ssh_node_pools.yaml", fmt.Sprintf("dock:\n  user: root\n  identity_file: %s\n  hosts: [%s, %s]\n", given["SKY_TEST_KEY"], host(16), host(17)))
	for _, i := range withEngines {
		eventually(w.t, "the engine answers", time.Minute, func() bool {
			return exec.Command("curl", "-fs", "--unix-socket", engineOf(i), "http://d/_ping").Run() == nil
		})
	}
}

func engineOf(i int) string { return filepath.Join(place, fmt.Sprint("h", i), "docker", "sock") }

// inEngines is what docker says on each host that has it.
func inEngines(t *testing.T, args ...string) []string {
	t.Helper()
	var all []string
	for _, i := range withEngines {
		out, err := exec.Command("docker", append([]string{"-H", "unix://" + engineOf(i)}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("docker %v on h%d: %v\n%s", args, i, err, out)
		}
		all = append(all, strings.TrimSpace(string(out)))
	}
	return all
}

// agentsInContainers are the agents' processes there.
func agentsInContainers() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		words := strings.Split(string(cmd), "\x00")
		if len(words) > 2 && strings.HasPrefix(words[0], "/opt/sky/") && words[1] == "agent" && words[2] == "--home" && onOurs(d) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// onOurs reports whether a process has the network of one of the hosts of this run:
// somebody else's on this machine have not.
func onOurs(process string) bool {
	its, err := os.Stat(filepath.Join(process, "ns", "net"))
	if err != nil {
		return false
	}
	for host := 1; host <= hosts; host++ {
		ours, err := os.Stat(fmt.Sprintf("/run/netns/sky%s-%d", given["SKY_TEST_TAG"], host))
		if err == nil && os.SameFile(its, ours) {
			return true
		}
	}
	return false
}

// noContainers looks at the engines of the hosts.
func noContainers(t *testing.T) {
	t.Helper()
	if out := strings.Join(inEngines(t, "ps", "-aq"), ""); out != "" {
		t.Errorf("containers are left on the hosts: %s", inEngines(t, "ps", "-a"))
	}
}

// The image has no Python, no sshd and no package manager, and comes from a
// registry with a password.
func TestAnImageOnMachines(t *testing.T) {
	r := startRegistry(t, true)
	w := newWorkstation(t)
	w.enginePool()
	w.write("proj/data.txt", "payload\n")
	w.write("mounted.txt", "mounted\n")
	task := w.write("task.yaml", fmt.Sprintf(`
num_nodes: 2
workdir: %[1]s/proj
resources:
  infra: ssh/dock
  image_id: docker:team/thin:amd64
secrets:
  SKYPILOT_DOCKER_USERNAME: %[3]s
  SKYPILOT_DOCKER_PASSWORD: %[4]s
  SKYPILOT_DOCKER_SERVER: %[2]s
file_mounts:
  /etc/mounted: %[1]s/mounted.txt
config:
  docker:
    run_options: ["-e 'GREETING=hello there'", --cap-drop=MKNOD]
setup: echo ready > ~/setup-done
run: |
  echo "rank $SKYPILOT_NODE_RANK is $FLAVOUR, $GREETING, home $HOME"
  cat data.txt ~/setup-done /etc/mounted
`, w.home, r.address, registryUser, registryPass))
	out := w.sky([]string{"rank 0 is thin, hello there, home /root", "rank 1 is thin, hello there, home /root", "payload", "ready", "mounted", "SUCCEEDED"}, "launch", "-y", "-c", "x", task)
	if strings.Contains(out, registryPass) {
		t.Error("the password is shown")
	}
	for _, out := range inEngines(t, "container", "ls", "--filter", "label=sky", "--format", "{{.Image}} {{.Networks}}") {
		if out != r.address+"/team/thin:amd64 host" {
			t.Errorf("the container is %q", out)
		}
	}

	// Everything else goes there, too.
	w.sky([]string{"thin again"}, "exec", "x", "--", "echo $FLAVOUR again")
	w.sky([]string{"thin in the shell"}, "ssh", "x", "--node", "1", "--", "echo $FLAVOUR in the shell")
	other := w.write("other.yaml", "resources: {image_id: 'docker:another:1'}\nrun: echo\n")
	if out, code := w.run("exec", "x", other); code == 0 || !strings.Contains(out, "the task wants the image docker:another:1") {
		t.Errorf("exec of another image: exit %d\n%s", code, out)
	}

	// A dead agent is started again, and its job goes on.
	w.sky(nil, "exec", "x", "-d", "--", "echo begun > ~/begun; sleep 15; echo over")
	eventually(t, "the job runs", time.Minute, func() bool {
		_, code := w.run("ssh", "x", "--", "cat ~/begun")
		return code == 0
	})
	var agents []int
	eventually(t, "an agent is in each container", time.Minute, func() bool { // what one just starts for a job looks like one for a moment
		agents = agentsInContainers()
		return len(agents) == 2
	})
	kill(t, agents)
	w.sky([]string{"over", "SUCCEEDED"}, "logs", "x")

	// So are containers, when the machines were off; their disks are kept.
	reboot(t, 16)
	reboot(t, 17)
	w.enginePool()
	eventually(t, "the cluster is up again", 2*time.Minute, func() bool { return w.status("x") == "UP" })
	w.sky([]string{"ready", "SUCCEEDED"}, "exec", "x", "--", "cat ~/setup-done")

	w.sky(nil, "down", "-y", "x")
	noContainers(t)
	w.nothingLeft()
}

func TestAClusterInContainersStopsItself(t *testing.T) {
	r := startRegistry(t, false)
	w := newWorkstation(t)
	w.enginePool()
	task := w.write("task.yaml", "num_nodes: 2\nresources:\n  infra: ssh/dock\n  image_id: docker:"+r.address+"/thin:amd64\nrun: echo done\n")
	w.sky([]string{"done"}, "launch", "-y", "-c", "x", "--down", "-i", "0", task)
	eventually(t, "the cluster is gone", 3*time.Minute, func() bool { return w.status("x") == "" })
	noContainers(t)
	w.nothingLeft()
}

func TestImagesThatDoNotComeSayWhy(t *testing.T) {
	r, private := startRegistry(t, false), startRegistry(t, true)
	w := newWorkstation(t)
	w.enginePool()
	login := func(password string) string {
		return fmt.Sprintf("secrets: {SKYPILOT_DOCKER_USERNAME: %s, SKYPILOT_DOCKER_PASSWORD: %s, SKYPILOT_DOCKER_SERVER: '%s'}\n", registryUser, password, private.address)
	}
	for _, c := range []struct{ name, image, more, says string }{
		{"no such tag", r.address + "/thin:nothing", "", "has no image " + r.address + "/thin:nothing"},
		{"no login", private.address + "/team/thin:amd64", "", "set SKYPILOT_DOCKER_USERNAME"},
		{"a wrong password", "team/thin:amd64", login("guess"), "refuses the login as " + registryUser},
		{"another processor", r.address + "/thin:arm64", "", "is for arm64, and the machine is amd64"},
		{"no shell", r.address + "/thin:empty", "", "has no shell"},
		{"options that docker does not know", r.address + "/thin:amd64", "config: {docker: {run_options: [--no-such-option]}}\n", "docker.run_options of the configuration are refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := w.write("task.yaml", "resources:\n  infra: ssh/dock\n  image_id: docker:"+c.image+"\nrun: echo\n"+c.more)
			out, code := w.run("launch", "-y", "-c", "x", task)
			if code == 0 || !strings.Contains(out, c.says) {
				t.Errorf("exit %d, want %q in:\n%s", code, c.says, out)
			}
			noContainers(t)
		})
	}
	w.nothingLeft()
}
