package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

// Entries of ~/.ssh/config for clusters are files of their own below
// ~/.sky/generated/ssh, included by one line, so that "ssh CLUSTER" works.
const sshInclude = "Include ~/.sky/generated/ssh/*"

// updateSSH writes the entries of clusters that can be reached by ssh and
// removes those of the others; with complete also those of clusters that are not
// listed. Failing to is worth a warning only.
func (a *app) updateSSH(records []api.StatusRecord, complete bool) {
	dir := filepath.Join(a.home, ".sky", "generated", "ssh")
	listed, superseded := map[string]bool{}, map[string]bool{}
	var problems []error
	for _, r := range records {
		name := task.FileName(r.Name)
		listed[name] = true
		superseded[r.Name] = name != r.Name
		text, key := sshEntry(r, a.home, a.sshProxy())
		if text == "" {
			problems = append(problems, removeFile(filepath.Join(dir, name)))
			continue
		}
		problems = append(problems, a.writeSSH(dir, name, text, key))
	}
	old, _ := os.ReadDir(dir)
	for _, f := range old {
		if superseded[f.Name()] || complete && !listed[f.Name()] {
			problems = append(problems, removeFile(filepath.Join(dir, f.Name())))
		}
	}
	if err := errors.Join(problems...); err != nil {
		a.t.Warn("The ssh configuration could not be updated: %v", err)
	}
}

// serverEntry begins the entries that a server on this machine writes itself,
// and removes when their clusters go.
const serverEntry = "# Written by sky for cluster "

func removeFile(path string) error {
	if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), serverEntry) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *app) writeSSH(dir, name, text, key string) error {
	keys := filepath.Join(a.home, ".sky", "generated", "ssh-keys")
	for _, d := range [...]string{dir, keys} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if key != "" {
		if err := os.WriteFile(filepath.Join(keys, name+".key"), []byte(key), 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		return err
	}
	return includeSSH(filepath.Join(a.home, ".ssh", "config"))
}

// includeSSH puts the include line at the top of the user's ssh configuration.
func includeSSH(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(old)) {
		if strings.TrimSpace(line) == sshInclude {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text := "# Added by sky so that \"ssh CLUSTER\" works\n" + sshInclude + "\n"
	if len(old) > 0 {
		text += "\n" + string(old)
	}
	tmp := path + ".sky"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// sshProxy is the command that takes ssh to the nodes of clusters of a server
// elsewhere, which may be the only one to reach them; "" for the server here. It
// names the server where only the environment does, for ssh may be used where that
// is not set; but not where a password goes along with it, which would be missing
// then: such a server is reached where the environment says so.
func (a *app) sshProxy() string {
	if a.client == nil || a.client.Local() {
		return ""
	}
	self, err := os.Executable()
	if err != nil {
		self = "sky"
	}
	proxy := quoteWord(self) + " ssh --stdio"
	if u, err := url.Parse(a.env("SKYPILOT_API_SERVER_ENDPOINT")); err == nil && u.Host != "" && u.User == nil {
		proxy = "env SKYPILOT_API_SERVER_ENDPOINT=" + quoteWord(a.client.Endpoint()) + " " + proxy
	}
	return strings.ReplaceAll(proxy, "%", "%%") // which ssh has a meaning for
}

func quoteWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// sshEntry is the text of a cluster's entry and its private key; empty when the
// cluster cannot be reached by ssh. proxy, if not empty, is the command that
// connects, less its arguments.
func sshEntry(r api.StatusRecord, home, proxy string) (text, key string) {
	h := r.Handle
	cred := cmp.Or(r.Credentials, &api.Credentials{})
	if h == nil || len(h.StableIPs) == 0 || *cred == (api.Credentials{}) && h.SSHUser == nil {
		return "", ""
	}
	keyFile := cred.PrivateKey
	if key = cred.KeyContent; key != "" {
		keyFile = filepath.Join(home, ".sky", "generated", "ssh-keys", task.FileName(r.Name)+".key")
	}
	user := cmp.Or(cred.DockerUser, cred.User)
	if user == "" && h.SSHUser != nil { // who has a key of their own for these machines
		user = *h.SSHUser
	}
	var b strings.Builder
	for i, ips := range h.StableIPs {
		name, port := r.Name, 22
		if i > 0 {
			name = fmt.Sprintf("%s-worker%d", r.Name, i)
		}
		if i < len(h.StableSSHPorts) {
			port = h.StableSSHPorts[i]
		}
		fmt.Fprintf(&b, "Host %s\n  HostName %s\n  User %s\n", name, ips[1], user)
		if keyFile != "" {
			fmt.Fprintf(&b, "  IdentityFile %q\n  IdentitiesOnly yes\n", keyFile)
		}
		fmt.Fprintf(&b, "  ForwardAgent yes\n  Port %d\n", port)
		switch {
		case proxy != "":
			fmt.Fprintf(&b, "  ProxyCommand %s --node %d %s\n", proxy, i, r.Name)
		case cred.ProxyCommand != "":
			fmt.Fprintf(&b, "  ProxyCommand %s\n", cred.ProxyCommand)
		}
		b.WriteString("  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n\n")
	}
	return b.String(), key
}
