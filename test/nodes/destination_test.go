//go:build nodes && linux

package nodes

import (
	"strings"
	"testing"
)

// A user who may use sudo gets files where only root may write; others get the reason.
func TestDestinationsThatNeedRoot(t *testing.T) {
	w := newWorkstation(t)
	pool := func(user string) string {
		return user + "s:\n  user: " + user + "\n  identity_file: " + given["SKY_TEST_KEY"] + "\n  hosts: [" + host(7) + "]\n"
	}
	w.write(".sky/ssh_node_pools.yaml", pool("ada")+pool("bob"))
	w.write("proj/a.txt", "payload\n")
	task := func(mounts string) string {
		return w.write("task.yaml", "file_mounts:\n"+mounts+"run: |\n  cat /srv/model/a.txt /srv/new/file /srv/file /srv/root/own\n  touch /srv/model/mine && stat -c 'owner %U' /srv/model /srv /srv/root\n")
	}
	const all = "  /srv/model: ./proj\n  /srv/new/file: ./proj/a.txt\n  /srv/file: ./proj/a.txt\n  /srv/root/own: ./proj/a.txt\n"
	says := []string{"SUCCEEDED", "owner ada", "owner root"}
	w.sky(says, "launch", "-y", "-c", "x", "--infra", "ssh/adas", task(all))
	w.write("proj/a.txt", "changed\n")
	out := w.sky(says, "launch", "-y", "-c", "x", "--infra", "ssh/adas", task(all))
	if n := strings.Count(out, "changed\n"); n < 4 {
		t.Errorf("%d files are as they are now:\n%s", n, out)
	}
	out, code := w.run("launch", "-y", "-c", "x", "--infra", "ssh/adas", task("  /etc: ./proj\n"))
	if code == 0 || !strings.Contains(out, "/etc cannot be written") || !strings.Contains(out, "not empty") {
		t.Errorf("exit %d\n%s", code, out)
	}
	w.sky(nil, "down", "-y", "x")

	out, code = w.run("launch", "-y", "-c", "y", "--infra", "ssh/bobs", task("  /srv/bobs: ./proj\n"))
	if code == 0 || !strings.Contains(out, "/srv/bobs cannot be written") || !strings.Contains(out, "sudo: a password is required") {
		t.Errorf("exit %d\n%s", code, out)
	}
	w.sky(nil, "down", "-y", "y")
}
