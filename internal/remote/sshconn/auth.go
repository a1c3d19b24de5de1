package sshconn

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// login collects the ways to log in to one target, and what became of them for
// the error message.
type login struct {
	methods []ssh.AuthMethod
	tried   []string
	agent   net.Conn
}

func (l *login) close() {
	if l.agent != nil {
		l.agent.Close()
	}
}

func (l *login) String() string {
	if len(l.tried) == 0 {
		return "nothing, for there is no key"
	}
	return strings.Join(l.tried, ", ")
}

// login finds keys and passwords: what the target names first, then what is the
// user's own.
func (p *Pool) login(t Target) *login {
	l := &login{}
	var signers []ssh.Signer
	add := func(path string, must bool) {
		path = expand(path, p.o.Home)
		s, err := readKey(path)
		switch {
		case err == nil:
			signers = append(signers, s)
			l.tried = append(l.tried, path)
		case must || !errors.Is(err, fs.ErrNotExist):
			l.tried = append(l.tried, fmt.Sprintf("%s (unusable: %v)", path, err))
		}
	}
	for _, path := range t.Identities {
		add(path, true)
	}
	if t.OwnKeys {
		signers = append(signers, l.fromAgent(p.o.AgentSocket)...)
		if len(t.Identities) == 0 {
			for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
				add(filepath.Join(p.o.Home, ".ssh", name), false)
			}
		}
	}
	if len(signers) > 0 {
		l.methods = append(l.methods, ssh.PublicKeys(signers...))
	}
	if t.OwnKeys && p.o.Password != nil {
		if pw := p.o.Password(t); pw != "" {
			l.tried = append(l.tried, "the password on file")
			l.methods = append(l.methods, ssh.Password(pw), ssh.KeyboardInteractive(
				func(_, _ string, questions []string, echo []bool) ([]string, error) {
					answers := make([]string, len(questions))
					for i := range questions {
						if !echo[i] {
							answers[i] = pw
						}
					}
					return answers, nil
				}))
		}
	}
	return l
}

// fromAgent asks a running ssh-agent for its keys.
func (l *login) fromAgent(socket string) []ssh.Signer {
	if socket == "" {
		return nil
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil
	}
	signers, err := agent.NewClient(conn).Signers()
	if err != nil || len(signers) == 0 {
		conn.Close()
		return nil
	}
	l.agent = conn
	l.tried = append(l.tried, fmt.Sprintf("%d keys of the ssh-agent", len(signers)))
	return signers
}

func readKey(path string) (ssh.Signer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := ssh.ParsePrivateKey(b)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, errors.New("it needs a passphrase: add it to the ssh-agent with ssh-add")
	}
	return s, err
}

// expand makes ~/x a path.
func expand(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}
