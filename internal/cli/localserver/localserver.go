// Package localserver keeps the API server that sky runs on the user's own
// machine: it starts one when a command finds none, and ends it.
//
// Any number of commands may start at once; a file lock makes sure that exactly
// one of them starts a server. The server is a process of its own, detached from
// the terminal, and describes itself in ~/.sky/api_server/instance.json.
package localserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

const (
	startTimeout = 60 * time.Second
	startPoll    = 20 * time.Millisecond
	logLines     = 15 // of a server that died, shown to the user
	healthTries  = 5
)

// Local is the local server of one home directory.
type Local struct {
	Home     string
	Client   *sky.Client // of the local endpoint
	Endpoint string
	// Command starts the server in the foreground: the program and its arguments.
	Command []string
	Environ []string
	// Chosen says that the user named the endpoint: then the server there is used
	// whosever it is. It is not started or stopped if it is not of this home folder.
	Chosen bool
	// Starting, if not nil, is called before a server is started.
	Starting func()
	// Grace is how long a server may take to end before it is killed; 0 means 20
	// seconds.
	Grace time.Duration

	prove time.Duration // proveWithin, but in tests
}

// Dir is where the server's log, lock and description are.
func Dir(home string) string { return filepath.Join(home, ".sky", "api_server") }

// LogFile is the server's log below home.
func LogFile(home string) string { return filepath.Join(Dir(home), "server.log") }

// Ensure returns the health of the server, starting one first when nothing
// answers.
func (l *Local) Ensure(ctx context.Context) (h *api.Health, started bool, err error) {
	if h, err = l.healthy(ctx); h != nil || err != nil {
		return h, false, err
	}
	if err := os.MkdirAll(Dir(l.Home), 0o700); err != nil {
		return nil, false, fmt.Errorf("making room for the API server's files: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(Dir(l.Home), ".creation.lock"))
	if err != nil {
		return nil, false, fmt.Errorf("waiting for another sky command that starts the API server: %w", err)
	}
	defer unlock()
	if h, err = l.healthy(ctx); h != nil || err != nil {
		return h, false, err // somebody else was faster
	}
	if l.Starting != nil {
		l.Starting()
	}
	h, err = l.start(ctx)
	return h, err == nil, err
}

// Free reports whether a server can be started in the foreground. If one runs already, or
// something else listens there, the error says what and what to do.
func (l *Local) Free(ctx context.Context) error {
	h, err := l.healthy(ctx)
	if err != nil || h == nil {
		return err
	}
	if err := l.Proved(ctx); err != nil {
		return err // sky api stop would not end it
	}
	return fmt.Errorf("an API server runs already at %s (process %d, version %s), and commands use it. To run one in the foreground, end it first: sky api stop", l.Endpoint, h.PID, h.Version)
}

// healthy asks for the server's health; nil without an error means that nobody
// listens.
func (l *Local) healthy(ctx context.Context) (*api.Health, error) {
	if !l.Chosen {
		if err := l.foreign(); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		h, err := l.Client.HealthIfListening(ctx)
		if err == nil && !l.Chosen {
			err = l.vouched(ctx)
		}
		if _, lost := errors.AsType[*sky.ConnectError](err); !lost {
			return h, l.explain(err)
		}
		if !l.listening() {
			return nil, nil
		}
		// It hangs, or somebody listens now who did not a moment ago: a server that
		// another command has just started.
		if !sky.Refused(err) || try == healthTries || ctx.Err() != nil {
			return h, err
		}
		time.Sleep(startPoll)
	}
}

// explain adds what to do to the error of a server that answers but is no use.
func (l *Local) explain(err error) error {
	if v, ok := errors.AsType[*sky.VersionError](err); ok {
		return fmt.Errorf("%w. Restart it with this version: sky api stop && sky api start", v)
	}
	if n, ok := errors.AsType[*sky.NotSkyError](err); ok {
		return fmt.Errorf("%w.%s End it, or set SKY_API_PORT to a free port", n, l.holder())
	}
	return err
}

func (l *Local) holder() string {
	port := strconv.Itoa(int(l.address().Port()))
	if who := portHolder(port); who != "" {
		return fmt.Sprintf(" Port %s is held by %s.", port, who)
	}
	return ""
}

// address is where the server listens.
func (l *Local) address() netip.AddrPort { return addressOf(l.Endpoint) }

func addressOf(endpoint string) netip.AddrPort {
	u, err := url.Parse(endpoint)
	if err != nil {
		return netip.AddrPort{}
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
}

func (l *Local) listening() bool {
	conn, err := net.DialTimeout("tcp", l.address().String(), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// start spawns a server and waits until it answers. The lock is held.
func (l *Local) start(ctx context.Context) (*api.Health, error) {
	logFile, err := os.OpenFile(LogFile(l.Home), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the API server's log: %w", err)
	}
	defer logFile.Close()
	from, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(l.Command[0], l.Command[1:]...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Dir, cmd.Env = rootDir, l.Environ
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	died := make(chan error, 1)
	go func() { died <- cmd.Wait() }()

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		h, err := l.Client.Ping(ctx, 2*time.Second)
		if err == nil {
			err = l.vouched(ctx) // somebody else may have been faster
		}
		if err == nil {
			return h, nil
		}
		_, other := errors.AsType[*ForeignError](err)
		if _, locked := errors.AsType[*sky.AuthError](err); other || locked {
			return nil, err
		}
		if _, other := errors.AsType[*sky.VersionError](err); other {
			return nil, l.explain(err)
		}
		select {
		case err := <-died:
			return nil, fmt.Errorf("the API server ended while starting (%s). The end of %s:\n%s",
				exitText(err), LogFile(l.Home), l.logTail(from))
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, ctx.Err()
			}
			_ = cmd.Process.Kill()
			return nil, fmt.Errorf("the API server did not answer at %s within %v. The end of %s:\n%s",
				l.Endpoint, startTimeout, LogFile(l.Home), l.logTail(from))
		case <-tick.C:
		}
	}
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// logTail is the end of what the server wrote since offset from.
func (l *Local) logTail(from int64) string {
	f, err := os.Open(LogFile(l.Home))
	if err != nil {
		return "  (no log)"
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil && end-from > 16<<10 {
		from = end - 16<<10
	}
	_, _ = f.Seek(from, io.SeekStart)
	b, _ := io.ReadAll(f)
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(b, []byte("?")))), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return "  (it wrote nothing)"
	}
	lines = lines[max(0, len(lines)-logLines):]
	return "  " + strings.Join(lines, "\n  ")
}

// lock takes the lock file at path; it is free again when the process ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	l := flock.New(path)
	if _, err := l.TryLockContext(ctx, startPoll); err != nil {
		l.Close()
		return nil, err
	}
	return func() { l.Close() }, nil
}
