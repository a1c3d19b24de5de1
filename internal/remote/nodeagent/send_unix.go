//go:build unix

package nodeagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/skypilot-go/sky/internal/buildid"
)

// sendDial bounds the connection and the login to the other node.
const sendDial = 15 * time.Second

// sendTo reads an Errand, runs its command on the other node with this program as
// input, and says what came of it. The key stays where it is: after the errand,
// in and out carry the protocol of ssh-agent, to which [SentExtension] brings
// the result.
func sendTo(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var e Errand
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	keys := agent.NewClient(struct {
		io.Reader
		io.Writer
	}{lines, out})
	s := Sent{}
	if err := e.run(ctx, keys); err != nil {
		s.Error = err.Error()
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = keys.Extension(SentExtension, b)
	return err
}

func (e *Errand) run(ctx context.Context, keys agent.Agent) error {
	client, err := e.login(ctx, keys)
	if err != nil {
		return err
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	s, err := client.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	in, err := s.StdinPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	s.Stderr = &said
	if err := s.Start(e.Command); err != nil {
		return err
	}
	serr := send(in)
	in.Close()
	if err := s.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return serr
}

// login connects to the first address that answers.
func (e *Errand) login(ctx context.Context, keys agent.Agent) (*ssh.Client, error) {
	var trusted []ssh.PublicKey
	var kinds []string
	for _, text := range e.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil {
			return nil, err
		}
		trusted, kinds = append(trusted, key), append(kinds, key.Type())
		if key.Type() == ssh.KeyAlgoRSA {
			kinds = append(kinds, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		}
	}
	cfg := &ssh.ClientConfig{
		User: e.User, Timeout: sendDial, HostKeyAlgorithms: kinds,
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(keys.Signers)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			for _, t := range trusted {
				if bytes.Equal(t.Marshal(), key.Marshal()) {
					return nil
				}
			}
			return errors.New("it shows another host key")
		},
	}
	var errs []error
	for _, address := range e.Addresses {
		d := net.Dialer{Timeout: sendDial}
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		late := time.AfterFunc(sendDial, func() { conn.Close() })
		c, chans, reqs, err := ssh.NewClientConn(conn, address, cfg)
		late.Stop()
		stop()
		if err == nil {
			return ssh.NewClient(c, chans, reqs), nil
		}
		conn.Close()
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	return nil, errors.Join(errs...)
}

// send writes this program. Nodes of one cluster are near each other: packing it
// would take longer than its way.
func send(w io.Writer) error {
	f, err := os.Open(buildid.Self())
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
