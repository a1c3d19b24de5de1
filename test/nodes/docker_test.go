//go:build nodes && linux

package nodes

import (
	"strings"
	"testing"
)

const image = "resources:\n  infra: docker\n  image_id: docker:sky-test:1\n"

func TestAClusterOfContainers(t *testing.T) {
	w := newWorld(t)
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
	w := newWorld(t)
	task := w.write("task.yaml", "resources:\n  infra: docker\n  image_id: docker:sky-test:empty\nrun: \"true\"\n")
	out, code := w.run("launch", "-y", "-c", "d", task)
	if code == 0 || !strings.Contains(out, "has no shell") {
		t.Errorf("exit %d\n%s", code, out)
	}
	w.nothingLeft()
}
