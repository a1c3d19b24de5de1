package sshpool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
	"github.com/skypilot-go/sky/task"
)

// pool is a set of machines under one name; to planning it is a region.
type pool struct {
	name  string
	hosts []*host
}

// regionPrefix is what the task language puts before a pool's name to make it a
// region: infra: ssh/lab is region ssh-lab.
const regionPrefix = "ssh-"

func region(pool string) string { return regionPrefix + pool }

// host is one machine.
type host struct {
	pool     string
	name     string // as the user wrote it
	reach    cloud.Reach
	internal string      // its address for the other hosts; "": the one its sshd is reached at
	runAs    runAs       // whose account clusters run as
	Password task.Secret // exported so that printing a host redacts it
}

func (h *host) id() string { return h.pool + "-" + h.name }

// poolsFile is what the pools' file may hold.
func poolsFile() *schema.Spec {
	access := []schema.Key{ // of a host, or of all hosts of a pool
		schema.New("user", schema.Written("The login.")),
		schema.New("port", schema.Whole("Of the host's sshd.").Or(schema.NullKind).AtLeast(0).AtMost(65535)),
		schema.New("identity_file", schema.Written("A private key.")),
		schema.New("password", schema.Written("The login's, for ssh and sudo.").Hidden()),
		schema.New("proxy_jump", schema.Written("Hosts on the way, as ssh -J has them.")),
		schema.New("proxy_command", schema.Written("Connects to the host's sshd.")),
		schema.New("run_as", schema.Written("Whose account clusters run as.")),
		schema.New("accounts", schema.Dict("Accounts by the users' names.", schema.Written("An account.")).Or(schema.NullKind)),
	}
	host := schema.Section("A host: a name alone, or more.", append(slices.Clip(access),
		schema.New("ip", schema.Written("Its address or name.")),
		schema.New("use_ssh_config", schema.YesNo("Look the name up in ~/.ssh/config.", false).Or(schema.NullKind)),
		schema.New("internal_ip", schema.Written("Its address for the other hosts.")))...)
	pool := schema.Section("A pool.", append(slices.Clip(access),
		schema.New("hosts", schema.List("", host.Or(schema.ScalarKind|schema.NullKind)).Or(schema.NullKind)))...)
	pools := schema.Dict("", pool.Or(schema.NullKind))
	pools.Title = "the file of pools"
	return pools
}

// errNoPools means that there is no file, or nothing in it.
var errNoPools = errors.New("there are no machines of one's own")

// load reads the pools' file. Errors say where they are.
func load(file, home string) ([]*pool, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoPools
	}
	if err != nil {
		return nil, err
	}
	return parse(b, file, home)
}

// parse reads what the pools' file says.
func parse(b []byte, file, home string) ([]*pool, error) {
	n, err := (&yaml11.Source{Name: file, Text: string(b)}).ReadOne()
	if err == nil && n != nil {
		err = poolsFile().Validate(n)
	}
	if err != nil {
		return nil, err
	}
	if n == nil {
		return nil, errNoPools
	}
	var pools []*pool
	for _, e := range n.Entries {
		name := e.Key.Text
		p := &pool{name: name}
		seen := map[string]bool{}
		for i, one := range e.Value.List("hosts") {
			h, err := newHost(name, e.Value, one, home)
			if err != nil {
				return nil, fmt.Errorf("%s: host %d of pool %s: %w", file, i+1, name, err)
			}
			if seen[h.name] {
				return nil, fmt.Errorf("%s: pool %s has the host %s twice", file, name, h.name)
			}
			seen[h.name] = true
			p.hosts = append(p.hosts, h)
		}
		if err := validName(name); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b *pool) int { return strings.Compare(a.name, b.name) })
	if !slices.ContainsFunc(pools, func(p *pool) bool { return len(p.hosts) > 0 }) {
		return nil, errNoPools
	}
	return pools, nil
}

// ipOf is the address that a host is written with.
func ipOf(host *yaml11.Node) string { return cmp.Or(host.TextAt(), host.TextAt("ip")) }

// newHost merges what the host says with what its pool says.
func newHost(name string, pool, one *yaml11.Node, home string) (*host, error) {
	ip := ipOf(one)
	if ip == "" {
		return nil, errors.New("it has no ip")
	}
	text := func(key string) string { return cmp.Or(one.TextAt(key), pool.TextAt(key)) }
	t := sshconn.Target{Host: ip, User: text("user"), Port: int(cmp.Or(one.Lookup("port").Number(), pool.Lookup("port").Number()))}
	if key := text("identity_file"); key != "" {
		if rest, ok := strings.CutPrefix(key, "~/"); ok {
			key = filepath.Join(home, rest)
		}
		t.Identities = []string{key}
	}
	jump := text("proxy_jump")
	t.ProxyCommand = text("proxy_command")
	if one.IsScalar() || one.Lookup("use_ssh_config").IsTrue() { // a name may be one of ~/.ssh/config
		var err error
		if t, err = sshconn.Configured(t, home); err != nil {
			return nil, err
		}
		if jump == "" {
			jump = joinJumps(t.Jump)
		}
	}
	h := &host{pool: name, name: ip, internal: one.TextAt("internal_ip"), Password: task.NewSecret(text("password"))}
	if h.internal != "" && net.ParseIP(h.internal) == nil {
		return nil, fmt.Errorf("internal_ip: %q is no address", h.internal)
	}
	var accounts map[string]string
	if list := cmp.Or(one.Get("accounts"), pool.Get("accounts")); list != nil {
		accounts = map[string]string{}
		for _, e := range list.Entries {
			accounts[e.Key.Text] = e.Value.TextAt()
		}
	}
	var err error
	if h.runAs, err = newRunAs(text("run_as"), accounts); err != nil {
		return nil, err
	}
	h.reach = cloud.Reach{
		Method: "ssh", Host: t.Host, Port: t.Port, User: t.User, OwnKeys: true, Machine: cloud.MachineFolder,
		ProxyJump: jump, ProxyCommand: t.ProxyCommand,
	}
	if h.reach.Port == 0 {
		h.reach.Port = 22
	}
	if h.reach.User == "" {
		h.reach.User = loginName()
	}
	// The machines stay: what is learnt about them is kept under their address.
	h.reach.HostAlias = h.reach.Host
	if h.reach.Port != 22 {
		h.reach.HostAlias = fmt.Sprintf("[%s]:%d", h.reach.Host, h.reach.Port)
	}
	if len(t.Identities) > 0 {
		h.reach.IdentityFile = t.Identities[0]
		if rest, ok := strings.CutPrefix(h.reach.IdentityFile, "~/"); ok {
			h.reach.IdentityFile = filepath.Join(home, rest)
		}
	}
	_, err = sshconn.FromReach(h.reach)
	return h, err
}

func joinJumps(jumps []sshconn.Target) string {
	var out []string
	for _, j := range jumps {
		s := j.Addr()
		if j.User != "" {
			s = j.User + "@" + s
		}
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

func loginName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), "root")
}

// Passwords finds the password on file for a machine of a pool.
func Passwords(file, home string) func(sshconn.Target) string {
	return func(t sshconn.Target) string {
		pools, err := load(file, home)
		if err != nil {
			return ""
		}
		for _, p := range pools {
			for _, h := range p.hosts {
				if h.reach.Host == t.Host && h.reach.Port == t.Port && h.reach.User == t.User {
					return h.Password.Reveal()
				}
			}
		}
		return ""
	}
}
