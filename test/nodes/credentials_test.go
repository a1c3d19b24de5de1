//go:build nodes && linux

package nodes

import (
	"strings"
	"testing"
	"time"
)

// Credentials come to nodes when the configuration asks for them, follow changes, and go again.
func TestCredentialsOnNodes(t *testing.T) {
	w := newWorkstation(t)
	w.write(".cloudflare/accountid", "first")
	w.write(".sky/config.yaml", "ssh: {remote_identity: LOCAL_CREDENTIALS}\n")
	look := func() string {
		out, _ := w.run("exec", "x", "--", "cat ~/.cloudflare/accountid; stat -c 'mode %a' ~/.cloudflare/accountid")
		return out
	}
	w.sky([]string{"Nodes get your credentials of Cloudflare (ssh.remote_identity).", "Nodes have your credentials of Cloudflare"}, "launch", "-y", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "2", "--", "true")
	if out := look(); !strings.Contains(out, "first") || !strings.Contains(out, "mode 600") {
		t.Errorf("%s", out)
	}
	w.write(".cloudflare/accountid", "second")
	eventually(t, "changed credentials on nodes", 3*time.Minute, func() bool { return strings.Contains(look(), "second") })
	w.write(".sky/config.yaml", "{}\n")
	w.sky(nil, "launch", "-y", "-c", "x", "--infra", "ssh/lab", "--num-nodes", "2", "--", "true")
	if out := look(); strings.Contains(out, "second") {
		t.Errorf("they are still there: %s", out)
	}
	w.sky(nil, "down", "-y", "x")
	w.nothingLeft()
}
