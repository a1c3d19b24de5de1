//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAClustersLife(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	task := w.write("task.yaml", `
name: hi
setup: echo setting up
envs: {GREETING: hello}
run: |
  echo "$GREETING from $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES"
`)
	out := w.sky("launch", "-y", "-c", "c1", task)
	wants(t, out, "setting up", "hello from 0 of 1", "Job finished (status: SUCCEEDED)", "sky down c1")

	wants(t, w.sky("exec", "c1", "--", "echo again"), "again")
	wants(t, w.sky("status"), "NAME", "c1", "UP", "Local")
	wants(t, w.sky("queue", "c1"), "SUCCEEDED", "hi")
	wants(t, w.sky("logs", "c1", "1", "--no-follow"), "hello from 0 of 1")
	wants(t, w.sky("logs", "c1", "1", "--tail", "1"), "finished")
	wants(t, w.sky("logs", "c1", "1", "--status"), "SUCCEEDED")

	wants(t, w.sky("logs", "c1", "-s", "1"), "sky_logs")
	synced, _ := filepath.Glob(filepath.Join(w.home, "sky_logs/**/tasks/*.log"))
	deeper, _ := filepath.Glob(filepath.Join(w.home, "sky_logs/*/*/tasks/*.log"))
	if len(synced)+len(deeper) == 0 {
		t.Error("no log was downloaded")
	}

	os.WriteFile(filepath.Join(w.node("c1", 0), "kept"), []byte("x"), 0o600)
	w.sky("stop", "-y", "c1")
	if s := w.status("c1"); s != "STOPPED" {
		t.Errorf("stopped: %s", s)
	}
	w.fails(1, []string{"c1", "STOPPED", "sky start c1"}, "exec", "c1", "--", "true")
	w.sky("start", "-y", "c1")
	wants(t, w.sky("exec", "c1", "--", "ls ~/kept"), "kept")
	w.sky("down", "-y", "c1")
	if s := w.status("c1"); s != "" {
		t.Errorf("after down: %s", s)
	}
	if left := w.folders(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The user's own ssh reaches nodes without an sshd.
func TestPlainSSHReachesNodesOnThisMachine(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("needs ssh")
	}
	w := newWorkstation(t)
	wants(t, w.sky("launch", "-y", "-c", "s1", "--infra", "local", "--num-nodes", "2", "--", "true"), "ssh s1")
	entry := filepath.Join(w.home, ".sky/generated/ssh/s1")
	ssh := func(input string, args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command("ssh", append([]string{"-F", entry}, args...)...)
		cmd.Env, cmd.Stdin = w.command().Env, strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(out), 0
	}
	if out, code := ssh("typed", "s1", "cat; pwd; exit 7"); code != 7 || out != "typed"+w.node("s1", 0)+"\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if out, code := ssh("echo in a shell\n", "s1-worker1"); code != 0 || !strings.Contains(out, "in a shell") {
		t.Errorf("exit %d, %q", code, out)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") }))
	defer web.Close()
	if out, code := ssh("GET / HTTP/1.0\r\n\r\n", "-W", web.Listener.Addr().String(), "s1"); code != 0 || !strings.Contains(out, "reached") {
		t.Errorf("exit %d, %q", code, out)
	}
	w.sky("down", "-y", "s1")
	if _, err := os.Stat(entry); err == nil {
		t.Error("the entry stays without its cluster")
	}
}

func TestFourNodesTalkToEachOther(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	task := w.write("task.yaml", `
num_nodes: 4
run: |
  python3 - <<'PY'
  import os, socket, time
  ips = os.environ["SKYPILOT_NODE_IPS"].split()
  rank = int(os.environ["SKYPILOT_NODE_RANK"])
  assert len(set(ips)) == 4, ips
  s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  s.bind((ips[rank], 7000)); s.listen(8)
  for other in range(4):
      if other == rank: continue
      for _ in range(100):
          try:
              c = socket.create_connection((ips[other], 7000), 1); break
          except OSError: time.sleep(0.1)
      c.sendall(str(rank).encode()); c.close()
  got = set()
  while len(got) < 3:
      c, _ = s.accept(); got.add(c.recv(9).decode()); c.close()
  print("rank", rank, "heard from", sorted(got), flush=True)
  PY
`)
	out := w.sky("launch", "-y", "-c", "four", task)
	for rank := range 4 {
		wants(t, out, fmt.Sprintf("rank %d heard from", rank))
	}
	wants(t, out, "(head, rank=0, pid=", "(worker3, rank=3, pid=", "ip=127.")
}

func TestFilesArrive(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.write("proj/a.txt", "alpha")
	w.write("proj/skip.me", "no")
	w.write("proj/.skyignore", "*.me\n")
	w.write("proj/bin/run.sh", "#!/bin/bash\necho script ran\n")
	os.Chmod(filepath.Join(w.home, "proj/bin/run.sh"), 0o755)
	os.Symlink("a.txt", filepath.Join(w.home, "proj/link"))
	os.MkdirAll(filepath.Join(w.home, "proj/empty"), 0o755)
	w.write("data/one", "1")
	task := w.write("task.yaml", `
workdir: ./proj
num_nodes: 2
file_mounts:
  ~/data: ./data
  ~/single.txt: ./data/one
run: |
  cat a.txt; readlink link; ls -d empty; ./bin/run.sh; test ! -e skip.me && echo ignored; cat ~/data/one ~/single.txt
`)
	out := w.sky("launch", "-y", "-c", "files", task)
	wants(t, out, "alpha", "a.txt", "empty", "script ran", "ignored")
	again := w.sky("launch", "-y", "-c", "files", task)
	wants(t, again, "all there already")
}

func TestExitCodesOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c1")
	w.fails(100, []string{"FAILED"}, "exec", "c1", "--", "exit 3")
	bad := w.write("bad-setup.yaml", "setup: echo broken; exit 7\nrun: echo never\n")
	out := w.fails(100, []string{"FAILED_SETUP", "broken"}, "launch", "-y", "-c", "c1", bad)
	if strings.Contains(out, "pid=") && strings.Contains(out, ") never") {
		t.Error("run went on after setup failed")
	}
	w.fails(102, nil, "logs", "c1", "99")
	w.sky("exec", "c1", "-d", "--", "sleep 300")
	eventually(t, "the job runs", time.Minute, func() bool { return strings.Contains(w.sky("queue", "c1"), "RUNNING") })
	w.fails(101, []string{"RUNNING"}, "logs", "c1", "--status")
	w.sky("cancel", "-y", "c1")
	w.fails(103, []string{"CANCELLED"}, "logs", "c1", "--status")
}

func TestCancelEndsDaemonsToo(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c1")
	w.sky("exec", "c1", "-d", "--", "setsid bash -c 'trap \"\" TERM; exec -a stubborn sleep 555' & (setsid nohup sleep 556 >/dev/null 2>&1 &) ; sleep 557")
	count := func() (n int) {
		for _, cmd := range w.processes() {
			if strings.HasSuffix(cmd, " 555") || strings.HasSuffix(cmd, " 556") || strings.HasSuffix(cmd, " 557") {
				n++
			}
		}
		return n
	}
	eventually(t, "the job and its daemons run", time.Minute, func() bool { return count() >= 3 })
	w.sky("cancel", "-y", "c1")
	eventually(t, "all have ended", time.Minute, func() bool { return count() == 0 })
	w.fails(103, []string{"CANCELLED"}, "logs", "c1", "--status")
}

func TestTenCommandsAtOnceStartOneServer(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if out, code := w.run("status"); code != 0 {
				t.Errorf("exit %d\n%s", code, out)
			}
		})
	}
	wg.Wait()
	servers := 0
	for _, cmd := range w.processes() {
		if strings.Contains(cmd, "api start") {
			servers++
		}
	}
	if servers != 1 {
		t.Errorf("%d servers run: %v", servers, w.processes())
	}
	for i := range 10 {
		wg.Go(func() {
			name := fmt.Sprintf("c%d", i)
			out, code := w.run("launch", "-y", "-c", name, "--", "echo from "+name)
			if code != 0 || !strings.Contains(out, "from "+name) {
				t.Errorf("exit %d\n%s", code, out)
			}
		})
	}
	wg.Wait()
}

func TestAutostopAndAutodown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for two idle minutes")
	}
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "stopper", "--", "true")
	w.sky("launch", "-y", "-c", "downer", "--", "true")
	w.sky("autostop", "-y", "-i", "1", "stopper")
	w.sky("autostop", "-y", "-i", "1", "--down", "downer")
	wants(t, w.sky("status"), "1m", "(down)")
	// The server is not needed for it.
	w.killServer()
	eventually(t, "the machines went off by themselves", 3*time.Minute, func() bool { return len(w.agents()) == 0 })
	if s := w.status("stopper"); s != "STOPPED" {
		out := w.sky("status", "--refresh")
		if s := w.status("stopper"); s != "STOPPED" {
			t.Errorf("stopper is %s\n%s", s, out)
		}
	}
	w.sky("status", "--refresh")
	if s := w.status("downer"); s != "" {
		t.Errorf("downer is %s", s)
	}
}

func TestAPIInfoAndStatus(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("api", "start")
	var info map[string]any
	if err := json.Unmarshal([]byte(w.stdout("api", "info", "-o", "json")), &info); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(info)
	wants(t, text, fmt.Sprint(w.port), fmt.Sprint(w.serverPID()))
	w.sky("launch", "-y", "-c", "c1", "-d", "--", "true")
	wants(t, w.sky("api", "status", "-a"), "sky.launch", "SUCCEEDED")
	wants(t, w.sky("check"), "Local", "enabled")
	wants(t, w.sky("version"), "1.0.0")
	w.sky("api", "stop")
	if pid := w.serverPID(); pid != 0 {
		t.Errorf("the server still runs: %d", pid)
	}
}

func TestAShellOnANode(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c1", "--num-nodes", "2")
	wants(t, w.sky("ssh", "c1", "--", "echo $HOME; exit 0"), "node-0/home")
	wants(t, w.sky("ssh", "c1", "--node", "1", "--", "echo $HOME"), "node-1/home")
	w.fails(7, nil, "ssh", "c1", "--", "exit 7")
}
