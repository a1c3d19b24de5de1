package sshconn

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Target is an sshd and how to log in there.
type Target struct {
	Host string
	Port int // 0: 22
	User string
	// RunAs is the account that commands run as, by sudo; "": User. It shares User's
	// connection.
	RunAs string

	Identities []string // private key files, tried in this order
	OwnKeys    bool     // then a running ssh-agent, the keys in ~/.ssh and a password on file

	HostKey string // keys that may be shown, as in authorized_keys; "": the one on record, else any
	Alias   string // the name under which host keys are on record; "": host and port

	Jump         []Target // through these, in order
	ProxyCommand string   // instead of a TCP connection; %h, %p, %r and %w (Node) are filled in
	Node         int
}

// FromReach is the target that a provider describes.
func FromReach(r cloud.Reach) (Target, error) {
	t := Target{
		Host: r.Host, Port: r.Port, User: r.User, HostKey: r.HostKey, Alias: r.HostAlias,
		OwnKeys: r.OwnKeys, ProxyCommand: r.ProxyCommand, RunAs: r.RunAs,
	}
	if t.RunAs != "" {
		if err := CheckAccount(t.RunAs); err != nil {
			return t, err
		}
	}
	if r.IdentityFile != "" {
		t.Identities = []string{r.IdentityFile}
	}
	var err error
	t.Jump, err = ParseJump(r.ProxyJump, t)
	return t, err
}

// Addr is host:port.
func (t Target) Addr() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.port())) }

func (t Target) port() int {
	if t.Port == 0 {
		return 22
	}
	return t.Port
}

// String is user@host, with the port if it is not the usual one.
func (t Target) String() string {
	s := t.Host
	if t.User != "" {
		s = t.User + "@" + s
	}
	if t.port() != 22 {
		s += ":" + strconv.Itoa(t.port())
	}
	return s
}

// alias is the name under which the host's keys are on record.
func (t Target) alias() string {
	switch {
	case t.Alias != "":
		return t.Alias
	case t.port() != 22:
		return "[" + t.Host + "]:" + strconv.Itoa(t.port())
	}
	return t.Host
}

// key tells connections apart.
func (t Target) key() string {
	var b strings.Builder
	command := strings.ReplaceAll(t.ProxyCommand, "%w", strconv.Itoa(t.Node))
	fmt.Fprintf(&b, "%s|%s|%s|%s|%v|%s|%s", t.User, t.Addr(), t.alias(), strings.Join(t.Identities, ","), t.OwnKeys, t.HostKey, command)
	for _, j := range t.Jump {
		b.WriteString("|" + j.key())
	}
	return b.String()
}

// ParseJump reads [user@]host[:port], several with commas, as ProxyJump has it.
// What it does not say is taken from the target that is reached through it.
func ParseJump(text string, like Target) ([]Target, error) {
	var out []Target
	if text == "" || strings.EqualFold(text, "none") {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		j := Target{User: like.User, Identities: like.Identities, OwnKeys: like.OwnKeys}
		part = strings.TrimPrefix(strings.TrimSpace(part), "ssh://")
		if user, rest, ok := cutLast(part, "@"); ok {
			j.User, part = user, rest
		}
		j.Host = strings.Trim(part, "[]")
		if host, port, err := net.SplitHostPort(part); err == nil {
			n, err := strconv.Atoi(port)
			if err != nil || n <= 0 || n > 65535 {
				return nil, fmt.Errorf("jump host %q: %q is no port", part, port)
			}
			j.Host, j.Port = host, n
		}
		if j.Host == "" {
			return nil, fmt.Errorf("%q names no jump host; it is written [user@]host[:port]", text)
		}
		out = append(out, j)
	}
	return out, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}
