package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/wholefile"
	"github.com/skypilot-go/sky/task"
)

// include is the line that makes the user's ssh know the clusters.
const include = "Include ~/.sky/generated/ssh/*"

// hashLine begins the line by which an entry is found when its cluster goes.
const hashLine = "# Written by sky for cluster "

// offerSSH lets the user say "ssh <cluster>". It is a convenience: what goes
// wrong is logged only.
func (r *Connector) offerSSH(ctx context.Context, c *state.Cluster) {
	if r.o.SSHConfig == "" || !r.HasSSHD(c.Nodes[0]) && r.o.SSHProxy == "" {
		return
	}
	if err := r.WriteSSHConfig(c); err != nil {
		r.o.Logger.WarnContext(ctx, "no entry in the user's ssh configuration", "cluster", c.Name, "err", err)
	}
}

// WriteSSHConfig writes the entries of a cluster for the user's ssh: its name
// for the head, <name>-worker<i> for the others. Host keys are checked against
// those that sky knows.
func (r *Connector) WriteSSHConfig(c *state.Cluster) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s (%s). It is removed with the cluster.\n", hashLine, c.Name, c.Hash)
	for rank, n := range c.Nodes {
		name := c.Name
		if rank > 0 {
			name += "-" + NodeName(rank)
		}
		if !r.HasSSHD(n) {
			r.writeServed(&b, name, c.Name, rank)
			continue
		}
		t, err := r.target(c, n)
		if err != nil {
			return err
		}
		r.writeHost(&b, name, t)
		fmt.Fprintf(&b, "  SetEnv SKY_CLUSTER_NAME=%s\n", c.NameOnCloud)
	}
	file := filepath.Join(r.o.SSHConfig, ".sky", "generated", "ssh", task.FileName(c.Name))
	err := wholefile.Write(file, []byte(b.String()), 0o600)
	if err != nil {
		return err
	}
	r.withdrawSSH(c.Hash, file)
	return includeEntries(filepath.Join(r.o.SSHConfig, ".ssh", "config"))
}

// writeServed writes the entry of a node for which this server speaks ssh. The way
// there is the command line's, which shows the server who it is: there is no host key
// to know.
func (r *Connector) writeServed(b *strings.Builder, name, cluster string, rank int) {
	fmt.Fprintf(b, "\nHost %s\n  HostName %s\n  User %s\n  ProxyCommand %s --node %d %s\n", name, name, anyUser, r.o.SSHProxy, rank, cluster)
	b.WriteString("  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n  ForwardAgent no\n")
}

// writeHost writes the entry of one host, and before it those of the hosts on the
// way there: what is said about a host does not count for its jump hosts.
func (r *Connector) writeHost(b *strings.Builder, name string, t sshconn.Target) {
	var way []string
	for i, j := range t.Jump {
		way = append(way, fmt.Sprintf("%s-jump%d", name, i+1))
		j.Jump = nil
		r.writeHost(b, way[i], j)
	}
	fmt.Fprintf(b, "\nHost %s\n  HostName %s\n", name, t.Host)
	if t.Port != 0 {
		fmt.Fprintf(b, "  Port %d\n", t.Port)
	}
	if t.User != "" {
		fmt.Fprintf(b, "  User %s\n", t.User)
	}
	for _, key := range t.Identities {
		fmt.Fprintf(b, "  IdentityFile %q\n", key)
	}
	if len(t.Identities) > 0 {
		b.WriteString("  IdentitiesOnly yes\n")
	}
	fmt.Fprintf(b, "  HostKeyAlias %s\n  UserKnownHostsFile %q\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n",
		r.o.SSH.Alias(t), r.o.SSH.KnownHosts())
	switch {
	case t.ProxyCommand != "":
		fmt.Fprintf(b, "  ProxyCommand %s\n", strings.ReplaceAll(t.ProxyCommand, "%w", fmt.Sprint(t.Node)))
	case len(way) > 0:
		fmt.Fprintf(b, "  ProxyJump %s\n", strings.Join(way, ","))
	}
	b.WriteString("  ForwardAgent no\n")
}

// includeEntries puts the Include line at the top of the user's configuration,
// where it is outside of any Host block.
func includeEntries(file string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(old)) {
		if strings.TrimSpace(line) == include {
			return nil
		}
	}
	return wholefile.Edit(file, []byte(include+"\n\n"+string(old)), 0o600)
}

// withdrawSSH removes a cluster's entries, except a file that stays.
func (r *Connector) withdrawSSH(hash, except string) {
	if r.o.SSHConfig == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(r.o.SSHConfig, ".sky", "generated", "ssh", "*"))
	for _, file := range files {
		if file == except {
			continue
		}
		b, err := os.ReadFile(file)
		first, _, _ := strings.Cut(string(b), "\n")
		if err == nil && strings.HasPrefix(first, hashLine) && strings.Contains(first, "("+hash+")") {
			os.Remove(file)
		}
	}
}
