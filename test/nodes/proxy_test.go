//go:build nodes && linux

package nodes

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// colleague is somebody on another network, from which the server can be reached
// and the nodes cannot.
type colleague struct {
	t    *testing.T
	ns   string
	home string
}

// newColleague makes that network, with one cable to this machine, and returns
// this machine's address on it.
func newColleague(t *testing.T) (*colleague, string) {
	t.Helper()
	c := &colleague{t: t, ns: "skyc" + given["SKY_TEST_TAG"]}
	var err error
	if c.home, err = os.MkdirTemp(place, "user-"); err != nil {
		t.Fatal(err)
	}
	bytes := netip.MustParseAddr(host(1)).As4()
	here, there := fmt.Sprintf("10.99.%d.1", bytes[2]), fmt.Sprintf("10.99.%d.2", bytes[2])
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
	ip("netns add " + c.ns)
	t.Cleanup(func() {
		exec.Command("ip", "netns", "del", c.ns).Run() // the cable goes with it
		os.RemoveAll(c.home)
	})
	ip("-n " + c.ns + " link set lo up")
	ip("link add " + c.ns + " type veth peer name eth0 netns " + c.ns)
	ip("addr add " + here + "/30 dev " + c.ns)
	ip("link set " + c.ns + " up")
	ip("-n " + c.ns + " addr add " + there + "/30 dev eth0")
	ip("-n " + c.ns + " link set eth0 up")
	return c, here
}

// try runs a command line in the colleague's home folder, see atHome.
func (c *colleague) try(line string) (string, error) {
	script := `mount --make-rprivate / && mount --bind "$HOME" /root && cd /root && { ` + line + "; }"
	cmd := exec.Command("timeout", "120", "ip", "netns", "exec", c.ns, "unshare", "--mount", "bash", "-c", script)
	cmd.Env = []string{"HOME=" + c.home, "PATH=" + os.Getenv("PATH"), "USER=colleague", "SHELL=/bin/bash", "LANG=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *colleague) runs(line string) string {
	c.t.Helper()
	out, err := c.try(line)
	if err != nil {
		c.t.Errorf("%s: %v\n%s", line, err, out)
	}
	return out
}

// TestOpenSSHThroughTheServer uses ssh, scp, sftp and rsync, and forwards ports,
// with the entries that sky writes, where only the server reaches the nodes.
func TestOpenSSHThroughTheServer(t *testing.T) {
	w := newWorkstation(t)
	w.rents()
	hash, err := bcrypt.GenerateFromPassword([]byte("s3cret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "ENABLE_BASIC_AUTH=true", "SKYPILOT_INITIAL_BASIC_AUTH=ada:"+string(hash))
	w.sky(nil, "api", "start", "--host", "0.0.0.0")
	c, server := newColleague(t)
	port := ""
	for _, v := range w.env {
		if p, ok := strings.CutPrefix(v, "SKY_API_PORT="); ok {
			port = p
		}
	}
	cfg := fmt.Sprintf("api_server: {endpoint: \"http://ada:s3cret@%s:%s\"}\n", server, port)
	if err := os.MkdirAll(filepath.Join(c.home, ".sky"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.home, ".sky", "config.yaml"), []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}

	// Of rented machines the server has the key and tells it to whoever may have it;
	// to machines of one's own one logs in with one's own.
	sky := binary + " "
	c.runs(sky + "launch -y -c x --infra fluffycloud --num-nodes 2 -- true && " + sky + "launch -y -c own --infra ssh/lab -- true && " + sky + "status")
	if out, err := c.try("timeout 3 bash -c '</dev/tcp/" + host(1) + "/22'"); err == nil {
		t.Fatalf("the nodes can be reached without the server: %s", out)
	}
	if out := c.runs("ssh -G x | grep -i proxycommand"); !strings.Contains(out, "ssh --stdio") || strings.Contains(out, "s3cret") {
		t.Errorf("ssh goes through %q", out)
	}
	if out, err := c.try("ssh -o BatchMode=yes own hostname"); err == nil || !strings.Contains(out, "Permission denied") {
		t.Errorf("without the key of one's own machines: %v\n%s", err, out)
	}
	key, err := os.ReadFile(given["SKY_TEST_KEY"])
	if err == nil {
		err = os.WriteFile(filepath.Join(c.home, ".ssh", "id_ed25519"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out := c.runs("ssh own hostname"); !strings.HasPrefix(out, "h") {
		t.Errorf("one's own machine is %q", out)
	}

	// Commands, their input and exit codes, on every node.
	// Nothing else is said.
	first, second := c.runs("ssh x pwd"), c.runs("ssh x-worker1 pwd")
	if !strings.HasPrefix(first, "/") || strings.Count(first+second, "\n") != 2 || first == second {
		t.Errorf("the nodes are at %q and %q", first, second)
	}
	sshd := strings.TrimSpace(c.runs("ssh -G x | awk '$1 == \"hostname\" { h = $2 } $1 == \"port\" { p = $2 } END { print h \":\" p }'"))
	if out := c.runs("echo typed | ssh x cat; ssh x 'exit 7'; echo code $?"); out != "typed\ncode 7\n" {
		t.Errorf("%q", out)
	}
	if out := c.runs("ssh -tt x 'test -t 0 && echo a terminal'"); !strings.Contains(out, "a terminal") {
		t.Errorf("%q", out)
	}

	// Files, there and back, more than any buffer holds.
	payload := make([]byte, 5<<20)
	_, _ = rand.Read(payload)
	if err := os.WriteFile(filepath.Join(c.home, "payload"), payload, 0o600); err != nil {
		t.Fatal(err)
	}
	ways := map[string]string{ // machines of FluffyCloud have no sftp
		"scp":  "scp -q payload own:sent && scp -q own:sent back-scp && ssh own rm sent",
		"sftp": `printf 'put payload sent\nget sent back-sftp\nrm sent\n' | sftp -q -b - own`,
		"cat":  "ssh x 'cat > sent' < payload && ssh x cat sent > back-cat && ssh x rm sent",
	}
	if _, err := exec.LookPath("rsync"); err == nil {
		ways["rsync"] = "rsync payload x:sent && rsync x:sent back-rsync && ssh x rm sent"
	}
	for name, line := range ways {
		c.runs(line)
		if back, err := os.ReadFile(filepath.Join(c.home, "back-"+name)); err != nil || !bytes.Equal(back, payload) {
			t.Errorf("%s brought back %d bytes, %v", name, len(back), err)
		}
	}

	// Ports of the node, to a file descriptor and to a port here; and one of ours there.
	if out := c.runs("ssh -W " + sshd + " x </dev/null | head -c 8"); out != "SSH-2.0-" {
		t.Errorf("-W: %q", out)
	}
	forward := "ssh -o ExitOnForwardFailure=yes -N -L 127.0.0.1:2200:" + sshd + " x & until (exec 3<>/dev/tcp/127.0.0.1/2200 && head -c 8 <&3) 2>/dev/null; do sleep 0.1; done; kill $!"
	if out := c.runs(forward); out != "SSH-2.0-" {
		t.Errorf("-L: %q", out)
	}
	backward := fmt.Sprintf(`ssh -o ExitOnForwardFailure=yes -R 2201:%s:%s own 'exec 3<>/dev/tcp/127.0.0.1/2201 && printf "GET /api/health HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3 && head -n 1 <&3'`, server, port)
	if out := c.runs(backward); !strings.HasPrefix(out, "HTTP/1.") || !strings.Contains(out, "200") {
		t.Errorf("-R: %q", out)
	}

	// Who may not use the cluster does not get through.
	if err := os.WriteFile(filepath.Join(c.home, ".sky", "config.yaml"), []byte(strings.Replace(cfg, "s3cret", "guess", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.try("ssh x hostname"); err == nil {
		t.Errorf("with a wrong password: %s", out)
	}
	eventually(t, "no tunnel is left", time.Minute, func() bool {
		out, _ := exec.Command("ip", "netns", "pids", c.ns).Output()
		return strings.TrimSpace(string(out)) == ""
	})
	w.sky(nil, "down", "-y", "x", "own")
}
