package sshpool

import (
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

// entry is what may be said about a host, or about all hosts of a pool.
type entry struct {
	IP           string `json:"ip"`
	User         string `json:"user"`
	Port         int    `json:"port"`
	IdentityFile string `json:"identity_file"`
	Password     string `json:"password"`
	UseSSHConfig bool   `json:"use_ssh_config"`
	ProxyJump    string `json:"proxy_jump"`
	ProxyCommand string `json:"proxy_command"`
	InternalIP   string `json:"internal_ip"`

	RunAs    string            `json:"run_as"`
	Accounts map[string]string `json:"accounts"`
}

// hostEntry is a host: a name alone, or more.
type hostEntry struct{ entry }

// DecodeYAML implements [yaml11.Decoder].
func (h *hostEntry) DecodeYAML(n *yaml11.Node) error {
	if n.IsNull() {
		return nil
	}
	if n.IsScalar() {
		h.IP = n.Text
		h.UseSSHConfig = true // a name may be one of ~/.ssh/config
		return nil
	}
	return n.DecodeStrictly(&h.entry)
}

type poolEntry struct {
	Hosts        []hostEntry `json:"hosts"`
	User         string      `json:"user"`
	Port         int         `json:"port"`
	IdentityFile string      `json:"identity_file"`
	Password     string      `json:"password"`
	ProxyJump    string      `json:"proxy_jump"`
	ProxyCommand string      `json:"proxy_command"`

	RunAs    string            `json:"run_as"`
	Accounts map[string]string `json:"accounts"`
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
	var raw map[string]poolEntry
	n, err := (&yaml11.Source{Name: file, Text: string(b)}).ReadOne()
	if err == nil && n != nil {
		err = n.DecodeStrictly(&raw)
	}
	if err != nil {
		return nil, err
	}
	var pools []*pool
	for name, e := range raw {
		p := &pool{name: name}
		seen := map[string]bool{}
		for i, he := range e.Hosts {
			h, err := newHost(name, e, he.entry, home)
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

// newHost merges what the host says with what its pool says.
func newHost(name string, p poolEntry, e entry, home string) (*host, error) {
	if e.IP == "" {
		return nil, errors.New("it has no ip")
	}
	t := sshconn.Target{Host: e.IP, User: or(e.User, p.User), Port: e.Port}
	if t.Port == 0 {
		t.Port = p.Port
	}
	if t.Port < 0 || t.Port > 65535 {
		return nil, fmt.Errorf("%d is no port", t.Port)
	}
	if key := or(e.IdentityFile, p.IdentityFile); key != "" {
		if rest, ok := strings.CutPrefix(key, "~/"); ok {
			key = filepath.Join(home, rest)
		}
		t.Identities = []string{key}
	}
	jump := or(e.ProxyJump, p.ProxyJump)
	t.ProxyCommand = or(e.ProxyCommand, p.ProxyCommand)
	if e.UseSSHConfig {
		var err error
		if t, err = sshconn.Configured(t, home); err != nil {
			return nil, err
		}
		if jump == "" {
			jump = joinJumps(t.Jump)
		}
	}
	h := &host{pool: name, name: e.IP, internal: e.InternalIP, Password: task.NewSecret(or(e.Password, p.Password))}
	if h.internal != "" && net.ParseIP(h.internal) == nil {
		return nil, fmt.Errorf("internal_ip: %q is no address", h.internal)
	}
	accounts := e.Accounts
	if accounts == nil {
		accounts = p.Accounts
	}
	var err error
	if h.runAs, err = newRunAs(or(e.RunAs, p.RunAs), accounts); err != nil {
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
	return or(os.Getenv("USER"), "root")
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
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
