package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// kubernetesTransport brings agents into pods, through exec alone: no port is
// opened, and the account needs no other right.
type kubernetesTransport Connector

// bringTimeout bounds the whole way to a running agent in a pod.
const bringTimeout = 10 * time.Minute

func (t *kubernetesTransport) start(ctx context.Context, c *state.Cluster, n cloud.Node, _ *spread, _ *Containers) (string, error) {
	r := (*Connector)(t)
	if t.o.Kubernetes == nil {
		return "", errors.New("this server was not set up for Kubernetes")
	}
	if address, ok := r.answering(ctx, c, n); ok {
		return address, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bringTimeout, fmt.Errorf("the agent was not running in pod %s after %v", n.ID, bringTimeout))
	defer cancel()
	probe, err := t.probe(ctx, n)
	if err != nil {
		return "", fmt.Errorf("looking at pod %s: %w", n.ID, err)
	}
	bin, err := r.binary(probe.goos, probe.goarch)
	if err != nil {
		return "", err
	}
	installed := path.Join(kubernetes.AgentDir, bin.id, "sky")
	if !t.has(ctx, n, installed, bin) {
		if err := t.upload(ctx, n, installed, bin, probe); err != nil {
			return "", fmt.Errorf("bringing the agent into pod %s: %w", n.ID, err)
		}
	}
	return startWithin(c, n, "pod "+n.ID, func(stdin *bytes.Reader) (int, []byte, []byte, error) {
		res, err := t.exec(ctx, n, []string{shellOf(n), "-c", toolsOf(n) + `exec "$0" agent --start`, installed}, stdin)
		if err != nil {
			return 0, nil, nil, err
		}
		return res.Code, res.Stdout, res.Stderr, nil
	})
}

// execTries is how often an exec is tried that the API server or the pod's
// machine refused for the moment.
const execTries = 4

// exec runs a command that may be repeated. stdin, if given, is read again from
// its beginning.
func (t *kubernetesTransport) exec(ctx context.Context, n cloud.Node, command []string, stdin io.ReadSeeker) (*kubernetes.Result, error) {
	for try := 1; ; try++ {
		var in io.Reader
		if stdin != nil {
			if _, err := stdin.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			in = stdin
		}
		res, err := t.o.Kubernetes.Exec(ctx, n.Reach.Host, command, in)
		if err == nil || try == execTries || ctx.Err() != nil || kubernetes.PodGone(err) {
			return res, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Duration(try) * 300 * time.Millisecond):
		}
	}
}

// shellOf is the shell by which everything is done in a pod.
func shellOf(n cloud.Node) string { return cmp.Or(n.Reach.Shell, "/bin/sh") }

// toolsOf lets a script, and what it starts, find the tools of a pod whose image
// has none.
func toolsOf(n cloud.Node) string {
	if n.Reach.Shell == "" {
		return ""
	}
	return `export PATH="$PATH:` + path.Dir(n.Reach.Shell) + "\"\n"
}

// podProbe is what a pod's image has.
type podProbe struct {
	goos, goarch string
	gzip         bool
}

func (t *kubernetesTransport) probe(ctx context.Context, n cloud.Node) (podProbe, error) {
	res, err := t.exec(ctx, n, []string{shellOf(n), "-c", toolsOf(n) + `uname -s 2>/dev/null || echo Linux; uname -m 2>/dev/null || echo; command -v gzip`}, nil)
	if err != nil {
		return podProbe{}, err
	}
	lines := strings.Split(string(res.Stdout), "\n")
	if len(lines) < 2 || lines[1] == "" {
		return podProbe{}, fmt.Errorf("its shell does not say what machine it runs on: %s%s", res.Stdout, res.Stderr)
	}
	p := podProbe{gzip: len(lines) > 2 && lines[2] != ""}
	p.goos, p.goarch, err = platform(lines[0], lines[1])
	return p, err
}

// has reports whether the whole binary is in the pod: it says its own hash.
func (t *kubernetesTransport) has(ctx context.Context, n cloud.Node, installed string, bin *binary) bool {
	res, err := t.exec(ctx, n, []string{shellOf(n), "-c", `[ -x "$0" ] && exec "$0" agent --hash; exit 1`, installed}, nil)
	return err == nil && res.Code == 0 && strings.TrimSpace(string(res.Stdout)) == bin.hash
}

// upload sends the binary through the shell of the pod. It gets its name only
// when it has run and told the right hash.
func (t *kubernetesTransport) upload(ctx context.Context, n cloud.Node, installed string, bin *binary, probe podProbe) error {
	select {
	case t.uploads <- struct{}{}:
		defer func() { <-t.uploads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	suffix, unpack := "", "cat"
	if probe.gzip {
		suffix, unpack = ".gz", "gzip -dc"
	}
	file, err := (*Connector)(t).packed(bin, suffix)
	if err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	moving := &movingSeeker{movingReader{Reader: in}, in}
	go moving.watch(ctx, cancel)
	script := toolsOf(n) + fmt.Sprintf(`d=%s; t="$d/.up-$$"
umask 022
mkdir -p "$d" && %s >"$t" && chmod 755 "$t" && "$t" agent --hash && mv "$t" "$d/sky" && exit 0
c=$?; rm -f "$t"; exit $c`, sshconn.Quote(path.Dir(installed)), unpack)
	res, err := t.exec(ctx, n, []string{shellOf(n), "-c", script}, moving)
	if err != nil {
		return err
	}
	if res.Code != 0 {
		err := fmt.Errorf("exit code %d: %s%s", res.Code, res.Stderr, res.Stdout)
		if !bin.static() {
			err = fmt.Errorf("%w; this sky needs the C library of the machine that it was built on, which the image may lack: use a released one, or build it with CGO_ENABLED=0", err)
		}
		return err
	}
	if strings.TrimSpace(string(res.Stdout)) != bin.hash {
		return errors.New("what arrived there is not what was sent")
	}
	return nil
}

// movingSeeker is a movingReader that can begin again.
type movingSeeker struct {
	movingReader
	io.Seeker
}

// dialer connects to an agent through the agent's own program in the pod.
func (t *kubernetesTransport) dialer(n cloud.Node) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if t.o.Kubernetes == nil {
			return nil, errors.New("this server was not set up for Kubernetes")
		}
		script := `for b in ` + kubernetes.AgentDir + `/*/sky; do exec "$b" agent --connect "$0"; done`
		return t.o.Kubernetes.Pipe(ctx, n.Reach.Host, []string{shellOf(n), "-c", script, address})
	}
}
