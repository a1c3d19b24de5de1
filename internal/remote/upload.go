package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

const (
	// uploadsAtOnce shares the server's line between nodes.
	uploadsAtOnce = 16
	// uploadStall ends an upload on which nothing moves.
	uploadStall = time.Minute
)

// errStalled is the cause of an upload's context when nothing moves.
var errStalled = fmt.Errorf("nothing arrived there for %v", uploadStall)

// upload brings a binary onto the node. It counts as there only when the node
// has run it and it has told the right hash: what is cut off is never found by
// its name.
func (t *sshTransport) upload(ctx context.Context, target sshconn.Target, host *sshHost, bin *binary, dst string) error {
	select {
	case t.uploads <- struct{}{}:
		defer func() { <-t.uploads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	suffix, unpack := "", "cat"
	switch {
	case host.tools["zstd"]:
		suffix, unpack = ".zst", "zstd -dc"
	case host.tools["gzip"]:
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
	moving := &movingReader{Reader: in}
	go moving.watch(ctx, cancel)

	dir := path.Dir(dst)
	tmp := path.Join(dir, fmt.Sprintf(".up-%d", time.Now().UnixNano()))
	script := fmt.Sprintf(`d=%s; t=%s
umask 077
mkdir -p "$d" && %s >"$t" && chmod 700 "$t" && "$t" agent --hash && exit 0
c=$?; rm -f "$t"; exit $c`, sshconn.Quote(dir), sshconn.Quote(tmp), unpack)
	out, err := t.o.SSH.Run(ctx, target, "sh -c "+sshconn.Quote(script), moving)
	if err != nil {
		return uploadError(target, err)
	}
	if f := strings.Fields(string(out)); len(f) == 0 || f[len(f)-1] != bin.hash {
		return fmt.Errorf("what arrived on %s is not what was sent", target.Host)
	}
	// Other builds are not needed any more, running or not.
	_, err = t.o.SSH.Script(ctx, target, fmt.Sprintf(`d=%s
mv %s "$d/sky" || exit 1
for o in "${d%%/*}"/*; do [ "$o" = "$d" ] || rm -rf "$o"; done
rm -f "$d"/.up-*
exit 0
`, sshconn.Quote(dir), sshconn.Quote(tmp)))
	return err
}

func uploadError(target sshconn.Target, err error) error {
	var exit *sshconn.ExitError
	if errors.As(err, &exit) && exit.Code == 126 {
		return fmt.Errorf("%s does not run programs from its home folder (mounted noexec?): %w", target.Host, err)
	}
	return err
}

// movingReader notes that something was read.
type movingReader struct {
	io.Reader
	n atomic.Int64
}

func (m *movingReader) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	m.n.Add(int64(n))
	return n, err
}

// watch cancels when nothing was read for a while.
func (m *movingReader) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	for last := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(uploadStall):
		}
		n := m.n.Load()
		if n == last {
			cancel(errStalled)
			return
		}
		last = n
	}
}
