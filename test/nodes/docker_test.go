//go:build nodes && linux

package nodes

import (
	"strings"
	"testing"
)

const image = "resources:\n  infra: docker\n  image_id: docker:sky-test:1\n"

func TestAClusterOfContainers(t *testing.T) {
	w := newWorkstation(t)
	task := w.write("task.yaml", image+`
num_nodes: 2
run: |
  echo "rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES, $FLAVOUR"
  echo kept > ~/kept
`)
	w.sky([]string{"rank 0 of 2, thin", "rank 1 of 2, thin", "SUCCEEDED"}, "launch", "-y", "-c", "d", task)
	w.sky(nil, "stop", "-y", "d")
	if s := w.status("d"); s != "STOPPED" {
		t.Errorf("after stop: %s", s)
	}
	w.sky(nil, "start", "-y", "d")
	out := w.sky([]string{"SUCCEEDED"}, "exec", "d", "--num-nodes", "2", "--", "cat ~/kept")
	if n := strings.Count(out, "kept"); n < 2 {
		t.Errorf("the disks were lost:\n%s", out)
	}
	w.sky(nil, "exec", "d", "-d", "--", "sleep 1000")
	w.sky(nil, "down", "-y", "d")
	w.nothingLeft()
}

func TestAnImageWithoutAShell(t *testing.T) {
	w := newWorkstation(t)
	task := w.write("task.yaml", "resources:\n  infra: docker\n  image_id: docker:sky-test:empty\nrun: \"true\"\n")
	out, code := w.run("launch", "-y", "-c", "d", task)
	if code == 0 || !strings.Contains(out, "has no shell") {
		t.Errorf("exit %d\n%s", code, out)
	}
	w.nothingLeft()
}

// With --docker a task runs in a container here, whatever its file says, and without
// an engine it runs nowhere.
func TestLaunchWithDocker(t *testing.T) {
	w := newWorkstation(t)
	task := w.write("task.yaml", "resources:\n  any_of:\n  - infra: aws\n  - infra: ssh/lab\n  image_id: docker:sky-test:1\nrun: echo the $FLAVOUR one\n")
	w.sky([]string{"--docker is deprecated", "the thin one", "SUCCEEDED"}, "launch", "-y", "-c", "d", "--docker", task)
	if names := containers(t); len(names) != 1 {
		t.Errorf("containers: %v", names)
	}
	w.sky(nil, "down", "-y", "d")
	w.sky(nil, "api", "stop")
	engine := "DOCKER_HOST=unix://" + given["SKY_TEST_DOCKER"]
	for i, v := range w.env {
		if v == engine {
			w.env[i] = "DOCKER_HOST=unix:///nonexistent"
		}
	}
	out, code := w.run("launch", "-y", "-c", "none", "--docker", task)
	if code == 0 || !strings.Contains(out, "no container engine listens on /nonexistent") || strings.Contains(out, "aws") {
		t.Errorf("exit %d\n%s", code, out)
	}
}
