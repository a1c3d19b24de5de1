package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
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

// upload is a binary on its way to a node.
type upload struct {
	target    sshconn.Target
	host      *sshHost
	bin       *binary
	dst       string
	addresses []string // where other nodes find it
	alone     bool     // they do not
	sudo      bool     // the machine serves us alone: sudo may make a folder there
}

// bring brings a binary onto the node, from the server or from a node that has
// it. It counts as there only when the node has run it and it has told the right
// hash: what is cut off is never found by its name.
func (t *sshTransport) bring(ctx context.Context, s *spread, u upload) error {
	from, err := s.take(ctx)
	if err != nil {
		return err
	}
	if !from.server() && from.hash == u.bin.hash && !u.alone {
		err = t.relay(ctx, from, u.target, u.addresses, u.command("cat"))
		if err == nil {
			s.free(from)
		} else {
			// Whatever is wrong between them is nobody else's business.
			t.o.Logger.InfoContext(ctx, "one node could not bring the agent to another", "from", from.target.String(), "to", u.target.String(), "err", err)
			from = sender{}
		}
	} else if !from.server() {
		s.free(from)
		from = sender{}
	}
	if from.server() {
		err = t.upload(ctx, u)
	}
	if err != nil {
		return uploadError(u.target, err)
	}
	sentBy := "server"
	if !from.server() {
		sentBy = from.target.String()
	}
	t.o.Logger.InfoContext(ctx, "agent brought onto a node", "node", u.target.String(), "build", u.bin.id, "from", sentBy)
	return nil
}

// exitDamaged is how the command of an upload says that something else arrived
// than was sent.
const exitDamaged = 65

// uploadAge is how old an upload must be to count as one that was left behind:
// others may go on at this moment, also such whose connection is cut already.
const uploadAge = time.Hour

// executable is a script that makes the folder above $d one from which programs run. Where the
// file system does not run them (noexec), as that of homes on Container-Optimized OS, it becomes a
// link to a folder in the first of some folders that does and that only root writes to; $s is
// the command by which that is done. Where there is none, nothing is changed.
const executable = `runs() {
  printf '#!/bin/sh\n' >"$1/.runs-$$" && chmod 700 "$1/.runs-$$" && "$1/.runs-$$" 2>/dev/null
  set -- "$1" $?
  rm -f "$1/.runs-$$"
  return "$2"
}
r=${d%%/*}
[ -d "$r" ] || rm -f "$r"
mkdir -p "$r" && { runs "$r" || for p in /var/lib /var/lib/toolbox /var/lib/google /opt; do
  w=; [ -w "$p" ] || w=$s
  { [ -w "$p" ] || [ -n "$w" ]; } || continue
  e=$($w mktemp -d "$p/` + folder.RuntimePrefix + `XXXXXXXX" 2>/dev/null) || continue
  [ -z "$w" ] || $w chown "$(id -u)" "$e"
  if runs "$e" && rm -rf "$r" && ln -s "$e" "$r"; then break; fi
  $w rm -rf "$e"
done; }`

// command is what the node runs to take the binary in, which unpack reads from
// standard input. Other builds are not needed any more, running or not.
func (u *upload) command(unpack string) string {
	dir, now := path.Dir(u.dst), time.Now()
	tmp := path.Join(dir, fmt.Sprintf(".up-%d", now.UnixNano()))
	sudo := ""
	if u.sudo {
		sudo = "sudo -n"
	}
	return "sh -c " + sshconn.Quote(fmt.Sprintf(`d=%s; t=%s; s=%s
umask 077
`+executable+`
mkdir -p "$d" && %s >"$t" && chmod 700 "$t" && h=$("$t" agent --hash)
c=$?
[ $c != 0 ] || [ "$h" = %s ] || c=%d
[ $c != 0 ] || mv "$t" %s || c=$?
[ $c = 0 ] || { rm -f "$t"; exit $c; }
for o in "${d%%/*}"/*; do case $o in "$d"|"${d%%/*}/*") ;; *) rm -rf "$o" ;; esac; done
for o in "$d"/.up-*; do [ "${o##*-}" -ge %d ] 2>/dev/null || rm -f "$o"; done
exit 0`, sshconn.Quote(dir), sshconn.Quote(tmp), sshconn.Quote(sudo), unpack, u.bin.hash, exitDamaged, sshconn.Quote(u.dst), now.Add(-uploadAge).UnixNano()))
}

// upload sends the binary from here.
func (t *sshTransport) upload(ctx context.Context, u upload) error {
	select {
	case t.uploads <- struct{}{}:
		defer func() { <-t.uploads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	suffix, unpack := "", "cat"
	switch {
	case u.host.tools["zstd"]:
		suffix, unpack = ".zst", "zstd -dc"
	case u.host.tools["gzip"]:
		suffix, unpack = ".gz", "gzip -dc"
	}
	file, err := (*Connector)(t).packed(u.bin, suffix)
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
	_, err = t.o.SSH.Run(ctx, u.target, u.command(unpack), moving)
	return err
}

func uploadError(target sshconn.Target, err error) error {
	var exit *sshconn.ExitError
	switch {
	case errors.As(err, &exit) && exit.Code == 126:
		return fmt.Errorf("%s does not run programs from its home folder (mounted noexec?), and no folder such as /var/lib could be used in its place, which takes root: %w", target.Host, err)
	case errors.As(err, &exit) && exit.Code == exitDamaged:
		return fmt.Errorf("what arrived on %s is not what was sent", target.Host)
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
