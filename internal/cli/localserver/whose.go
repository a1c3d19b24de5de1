package localserver

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strconv"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/tcpowner"
)

// A ForeignError means that what listens where the local server would is not this
// user's, or not of this home folder.
type ForeignError struct {
	Endpoint string
	Who      string // whose it is, as far as it is known
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("what listens at %s is %s, and is neither used nor stopped. Use another port for a server of your own: export SKY_API_PORT=PORT. "+
		"To use that server on purpose: export SKYPILOT_API_SERVER_ENDPOINT=%[1]s", e.Endpoint, e.Who)
}

// listenerOf finds who listens at an address; tests replace it.
var listenerOf = tcpowner.Listener

// Vouch reports whether what listens at an address may be shown that the caller reads
// this home folder: it is not known to be somebody else's.
func Vouch(at netip.AddrPort) bool {
	o := listenerOf(at)
	return !o.Known || o.UID == os.Getuid()
}

// foreign is the error that another account of this machine listens at the endpoint;
// nil if none does or it cannot be told.
func (l *Local) foreign() error {
	o := listenerOf(l.address())
	if !o.Known || o.UID == os.Getuid() {
		return nil
	}
	who := fmt.Sprintf("uid %d", o.UID)
	if u, err := user.LookupId(strconv.Itoa(o.UID)); err == nil {
		who = fmt.Sprintf("%s (uid %d)", u.Username, o.UID)
	}
	return &ForeignError{l.Endpoint, "another user's, " + who}
}

// vouched reports why the server at the endpoint, which answers, is not this user's:
// where the system does not tell who listens it must prove it.
func (l *Local) vouched(ctx context.Context) error {
	if err := l.foreign(); err != nil {
		return err
	}
	if listenerOf(l.address()).Known {
		return nil
	}
	return l.Proved(ctx)
}

// Proved reports why the server at the endpoint, which answers, is not that of this
// home folder: a [*ForeignError].
func (l *Local) Proved(ctx context.Context) error {
	if err := l.foreign(); err != nil {
		return err
	}
	h, ours, err := l.Client.Prove(ctx, cmp.Or(l.prove, proveWithin))
	if err != nil || ours {
		return err
	}
	in, err := sky.ReadInstance(l.Home)
	if err == nil && in.PID > 0 && in.PID == h.PID && in.InstanceID == h.InstanceID && proc.Alive(in.PID, in.Start) {
		return nil // of a build that proves nothing
	}
	return l.notOurs()
}

func (l *Local) notOurs() error {
	who := "not the server of this home folder, " + l.Home
	if p := portHolder(strconv.Itoa(int(l.address().Port()))); p != "" {
		who += ", but " + p
	}
	return &ForeignError{l.Endpoint, who}
}
