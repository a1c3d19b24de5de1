package sshconn

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Lend runs a command on a target that may log in to another one, once, with a
// key that it never sees: it writes line to the command's input, and from then
// on is an ssh-agent to it that has the other target's first key and signs for
// one login. What the command says in the extension of that name is returned.
func (p *Pool) Lend(ctx context.Context, t Target, command string, line []byte, to Target, extension string) ([]byte, error) {
	if len(to.Identities) == 0 {
		return nil, errors.New("there is no key to lend")
	}
	key, err := readKey(expand(to.Identities[0], p.o.Home))
	if err != nil {
		return nil, err
	}
	conn, err := p.Pipe(ctx, t, command)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(line); err != nil {
		return nil, &UnreachableError{t.String(), "running a command", err}
	}
	l := &lender{key: key, extension: extension}
	err = agent.ServeAgent(l, conn)
	if l.told != nil {
		return l.told, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == io.EOF {
		err = errors.New("it ended without a word")
	}
	return nil, fmt.Errorf("%s: %w", t, err)
}

// HostKeys are the keys that a target may show, as in authorized_keys; none if
// it was never met.
func (p *Pool) HostKeys(t Target) ([]string, error) {
	keys, _, err := p.hosts.accepted(t)
	var out []string
	for _, k := range keys {
		out = append(out, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.key))))
	}
	return out, err
}

// signatures is how often a lender signs: one login, which asks at most once
// for each kind of signature.
const signatures = 3

// lender is an ssh-agent with one key that can do nothing but sign a few times.
type lender struct {
	key       ssh.Signer
	extension string

	mu     sync.Mutex
	signed int
	told   []byte
}

var errLender = errors.New("this agent only signs")

func (l *lender) List() ([]*agent.Key, error) {
	pub := l.key.PublicKey()
	return []*agent.Key{{Format: pub.Type(), Blob: pub.Marshal(), Comment: "sky"}}, nil
}

func (l *lender) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	return l.SignWithFlags(key, data, 0)
}

func (l *lender) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	l.mu.Lock()
	l.signed++
	n := l.signed
	l.mu.Unlock()
	if n > signatures || !bytes.Equal(key.Marshal(), l.key.PublicKey().Marshal()) {
		return nil, errLender
	}
	algorithm := ""
	switch flags {
	case agent.SignatureFlagRsaSha256:
		algorithm = ssh.KeyAlgoRSASHA256
	case agent.SignatureFlagRsaSha512:
		algorithm = ssh.KeyAlgoRSASHA512
	}
	if s, ok := l.key.(ssh.AlgorithmSigner); ok && algorithm != "" {
		return s.SignWithAlgorithm(rand.Reader, data, algorithm)
	}
	return l.key.Sign(rand.Reader, data)
}

func (l *lender) Extension(name string, contents []byte) ([]byte, error) {
	if name != l.extension {
		return nil, agent.ErrExtensionUnsupported
	}
	l.told = bytes.Clone(contents)
	return nil, nil
}

func (l *lender) Signers() ([]ssh.Signer, error) { return nil, errLender }
func (l *lender) Add(agent.AddedKey) error       { return errLender }
func (l *lender) Remove(ssh.PublicKey) error     { return errLender }
func (l *lender) RemoveAll() error               { return errLender }
func (l *lender) Lock([]byte) error              { return errLender }
func (l *lender) Unlock([]byte) error            { return errLender }
