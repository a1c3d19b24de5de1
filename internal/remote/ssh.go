package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// sshTransport brings agents onto machines with an sshd, and everything that is
// said to them goes through its connections.
type sshTransport Connector

const (
	// bootTimeout is how long the sshd of a machine that was just made or switched
	// on may take to answer (those without a hypervisor test their memory first),
	// keyTimeout how long it may refuse our key from then on.
	bootTimeout = 15 * time.Minute
	keyTimeout  = 90 * time.Second
	bootRetry   = time.Second
	// scriptTimeout bounds a look at a node or the start of its agent.
	scriptTimeout = time.Minute
)

// target is how the node is logged in to.
func (r *Connector) target(c *state.Cluster, n cloud.Node) (sshconn.Target, error) {
	if r.o.SSH == nil {
		return sshconn.Target{}, errors.New("this server was not set up for ssh")
	}
	reach := n.Reach
	if reach.HostAlias == "" {
		reach.HostAlias = cloud.HostAlias(c.Hash, n.ID)
	}
	if reach.IdentityFile == "" && !reach.OwnKeys {
		key, _, err := r.userKey(c.UserHash)
		if err != nil {
			return sshconn.Target{}, err
		}
		reach.IdentityFile = key
	}
	t, err := sshconn.FromReach(reach)
	t.Node = n.Rank
	return t, err
}

func (t *sshTransport) start(ctx context.Context, c *state.Cluster, n cloud.Node, s *spread, made *Containers) (string, error) {
	r := (*Connector)(t)
	target, err := r.target(c, n)
	if err != nil {
		return "", err
	}
	if address, ok := r.answering(ctx, c, n); ok {
		return address, nil
	}
	host, err := t.reach(ctx, target, n, made != nil)
	if err != nil {
		return "", err
	}
	goos, goarch, err := platform(host.system, host.machine)
	if err != nil {
		return "", err
	}
	bin, err := r.binary(goos, goarch)
	if err != nil {
		return "", err
	}
	if c.Machine.Clone != nil && !c.EverUp {
		if err := t.cleanClone(ctx, c, target, host.home); err != nil {
			return "", err
		}
	}
	prepared := func() {}
	if made != nil && prepares(c, n) {
		var done sync.WaitGroup
		done.Go(func() { t.prepare(ctx, c, n, target) })
		prepared = done.Wait
	}
	defer prepared()
	installed := path.Join(host.home, ".sky", "runtime", bin.id, "sky")
	if !host.has[installed] {
		u := upload{target: target, host: host, bin: bin, dst: installed, addresses: addressesOf(n.InternalIP, target), alone: alone(n), sudo: !n.Reach.OwnKeys}
		if err := t.bring(ctx, s, u); err != nil {
			return "", fmt.Errorf("bringing the agent there: %w", err)
		}
	}
	if !alone(n) {
		s.free(sender{target, installed, bin.hash})
	}
	prepared() // before a container is made there, with apt-get for instance
	files, err := issue(c, n.ID)
	if err != nil {
		return "", err
	}
	listen := n.InternalIP
	if listen == "" {
		listen = host.address
	}
	listen = net.JoinHostPort(listen, strconv.Itoa(agentapi.Port))
	if c.Notes.Container != "" {
		name, err := t.contain(ctx, c, n, target, installed, host.home, made)
		if err != nil {
			return "", err
		}
		life, err := t.run(ctx, target, installed, nodeagent.Spec{
			Container: name, Machine: nodeagent.MachineInside, Files: files.Files(), WholeEnvironment: true, Listen: listen,
		})
		return life.Address, err
	}
	spec := nodeagent.Spec{Home: host.home, Machine: n.Reach.Machine, Files: files.Files(), Listen: listen}
	if n.Reach.Home != "" {
		spec.Node = path.Dir(host.home)
	}
	// What a rented machine gives to logins is meant for what runs there.
	spec.WholeEnvironment = !n.Reach.OwnKeys
	if prepares(c, n) {
		spec.OpenFiles = vm.MostOpenFiles
	}
	life, err := t.run(ctx, target, installed, spec)
	return life.Address, err
}

// prepares reports whether a node is a rented machine, which serves its cluster alone.
func prepares(c *state.Cluster, n cloud.Node) bool {
	of, ok := facts.Find(c.Offer.Cloud)
	return ok && of.Hardware == facts.Rented && !of.SharesFiles && !n.Reach.OwnKeys
}

// prepare runs [vm.Preparation] on a machine. A machine on which it fails is used as it is.
func (t *sshTransport) prepare(ctx context.Context, c *state.Cluster, n cloud.Node, target sshconn.Target) {
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	out, err := t.o.SSH.Script(ctx, target, vm.Preparation())
	if said := strings.TrimSpace(string(out)); err != nil || !strings.HasSuffix(said, "prepared") {
		t.o.Logger.WarnContext(ctx, "a machine was not prepared: its updates and limits are as they were", "cluster", c.Name, "node", NodeName(n.Rank), "said", said, "err", err)
	}
}

// answering reports whether the agent that is on record is there and of a build
// of ours: then nothing is to be done.
func (r *Connector) answering(ctx context.Context, c *state.Cluster, n cloud.Node) (string, bool) {
	if n.Reach.Agent == "" || n.Rank >= len(c.Nodes) {
		return "", false
	}
	client, err := r.client(c, n)
	if err != nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := client.Info(ctx)
	return n.Reach.Agent, err == nil && r.ours(info.BuildID)
}

// ours reports whether an agent's build is one that we bring onto nodes.
func (r *Connector) ours(id string) bool {
	if id == r.o.BuildID {
		return true
	}
	r.bins.mu.Lock()
	defer r.bins.mu.Unlock()
	for _, b := range r.bins.found {
		if b.id == id {
			return true
		}
	}
	return false
}

// sshHost is what a look at a node found.
type sshHost struct {
	system, machine string // as uname has them
	home            string // of the node
	address         string // where its sshd was reached, as the node knows it
	tools           map[string]bool
	has             map[string]bool // agents' binaries
}

// reach looks at the node. One that boots is given time: one that was just made,
// or, with booting, maybe switched on: how old it is does not tell that.
func (t *sshTransport) reach(ctx context.Context, target sshconn.Target, n cloud.Node, booting bool) (*sshHost, error) {
	began := time.Now()
	var refusing time.Time // since when it answers and refuses our key
	boots := (booting || time.Since(n.Created) < bootTimeout) && !n.Reach.OwnKeys
	for {
		host, err := t.look(ctx, target, n.Reach.Home)
		var gone *sshconn.UnreachableError
		var refused *sshconn.AuthError
		switch {
		case err == nil:
			return host, nil
		case ctx.Err() != nil || !boots:
			return nil, err
		case errors.As(err, &gone) && time.Since(began) < bootTimeout:
		case errors.As(err, &refused):
			if refusing.IsZero() {
				refusing = time.Now()
			}
			if time.Since(refusing) >= keyTimeout {
				return nil, err
			}
		default:
			return nil, err
		}
		cloud.ReportWait(ctx, fmt.Sprintf("%s to boot: %v", NodeName(n.Rank), err))
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(bootRetry):
		}
	}
}

func (t *sshTransport) look(ctx context.Context, target sshconn.Target, home string) (*sshHost, error) {
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	script := `h=` + sshconn.Quote(home) + `
[ -n "$h" ] || h=$HOME
echo "system=$(uname -s)"
echo "machine=$(uname -m)"
echo "home=$h"
echo "connection=$SSH_CONNECTION"
for z in zstd gzip; do command -v $z >/dev/null 2>&1 && echo "tool=$z"; done
for b in "$h"/.sky/runtime/*/sky; do [ -x "$b" ] && echo "binary=$b"; done
exit 0
`
	out, err := t.o.SSH.Script(ctx, target, script)
	if err != nil {
		return nil, err
	}
	host := &sshHost{tools: map[string]bool{}, has: map[string]bool{}, address: "127.0.0.1"}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "system":
			host.system = value
		case "machine":
			host.machine = value
		case "home":
			host.home = value
		case "connection":
			if f := strings.Fields(value); len(f) == 4 {
				host.address = f[2]
			}
		case "tool":
			host.tools[value] = true
		case "binary":
			host.has[value] = true
		}
	}
	if host.home == "" || host.system == "" {
		return nil, &sshconn.NoShellError{Host: target.Host, Said: strings.TrimSpace(string(out))}
	}
	return host, nil
}

// run starts the agent and reads what became of it.
func (t *sshTransport) run(ctx context.Context, target sshconn.Target, installed string, spec nodeagent.Spec) (nodeagent.Life, error) {
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	in, err := json.Marshal(spec)
	if err != nil {
		return nodeagent.Life{}, err
	}
	out, err := t.o.SSH.Run(ctx, target, sshconn.Quote(installed)+" agent --start", bytes.NewReader(in))
	return started(target.Host, out, err)
}

// started reads what "sky agent --start" says on a node: its last line, after
// whatever login scripts print.
func started(host string, out []byte, err error) (nodeagent.Life, error) {
	var answer struct {
		nodeagent.Life
		nodeagent.Refusal
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	jerr := json.Unmarshal(lines[len(lines)-1], &answer)
	switch {
	case jerr != nil || answer.Address == "" && answer.Error == "":
		if err == nil {
			err = fmt.Errorf("it gave no answer that makes sense: %q", out)
		}
		return nodeagent.Life{}, err
	case answer.NoSpace:
		return nodeagent.Life{}, &sshconn.NoSpaceError{Host: host, Said: answer.Error}
	case answer.Error != "":
		return nodeagent.Life{}, errors.New(answer.Error)
	}
	return answer.Life, nil
}

// dialer connects to an agent through the node's sshd.
func (t *sshTransport) dialer(c *state.Cluster, n cloud.Node) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		target, err := (*Connector)(t).target(c, n)
		if err != nil {
			return nil, err
		}
		conn, err := t.o.SSH.Dial(ctx, target, address)
		if !errors.Is(err, sshconn.ErrNoForwarding) {
			return conn, err
		}
		// The agent's own program can do it, too.
		home := `"$HOME"`
		if n.Reach.Home != "" {
			home = sshconn.Quote(n.Reach.Home)
		}
		script := `for b in ` + home + `/.sky/runtime/*/sky; do exec "$b" agent --connect ` + sshconn.Quote(address) + `; done`
		return t.o.SSH.Pipe(ctx, target, "sh -c "+sshconn.Quote(script))
	}
}
