//go:build linux || darwin

package localserver

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/tcpowner"
)

// heldBy makes the test believe that an account listens.
func heldBy(t *testing.T, o tcpowner.Owner) {
	t.Helper()
	was := listenerOf
	listenerOf = func(netip.AddrPort) tcpowner.Owner { return o }
	t.Cleanup(func() { listenerOf = was })
}

func foreign(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	if _, ok := errors.AsType[*ForeignError](err); !ok {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, s := range append(says, "SKY_API_PORT") {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %v; it must say %q", what, err, s)
		}
	}
}

func TestAnotherUsersServerIsNeitherUsedNorStopped(t *testing.T) {
	l := local(t, "good")
	if _, _, err := l.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	guest := local(t, "good")
	guest.Endpoint = l.Endpoint
	guest.Client = guest.client(t)
	heldBy(t, tcpowner.Owner{UID: os.Getuid() + 1, Known: true})
	_, _, err := guest.Ensure(t.Context())
	foreign(t, "use", err, "uid ")
	_, err = guest.Stop(t.Context())
	foreign(t, "stop", err, "uid ")
	foreign(t, "start", guest.Proved(t.Context()), "uid ")
	if Vouch(guest.address()) {
		t.Error("a credential would be shown to it")
	}
	guest.Chosen = true
	if _, started, err := guest.Ensure(t.Context()); err != nil || started {
		t.Errorf("a server that the user chose: %v, %v", started, err)
	}
	_, err = guest.Stop(t.Context())
	foreign(t, "stop of a server that the user chose", err)
	if !l.listening() || starts(t, guest) != 0 {
		t.Error("the server has changed")
	}
}

func TestAServerOfAnotherHomeIsNotStopped(t *testing.T) {
	l := local(t, "good")
	if _, _, err := l.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := local(t, "good")
	other.Endpoint = l.Endpoint
	for _, home := range []string{"without a token", "with another token"} {
		if home == "with another token" {
			if err := os.MkdirAll(Dir(other.Home), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(sky.OwnerFile(other.Home), []byte("sky_owner_other"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		other.Client = other.client(t)
		_, err := other.Stop(t.Context())
		foreign(t, "stop, "+home, err, other.Home)
		foreign(t, "start, "+home, other.Proved(t.Context()), other.Home)
		foreign(t, "start in the foreground, "+home, other.Free(t.Context()), other.Home)
	}
	if !l.listening() {
		t.Error("it was stopped")
	}
	if err := l.Proved(t.Context()); err != nil {
		t.Errorf("the home's own: %v", err)
	}
}

// Where the system does not tell who listens, a server is used if it proves to know
// the home folder's token.
func TestWhereTheSystemDoesNotTellTheServerMustProve(t *testing.T) {
	heldBy(t, tcpowner.Untold)
	l := local(t, "good")
	if _, _, err := l.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Client = l.client(t)
	if _, started, err := l.Ensure(t.Context()); err != nil || started {
		t.Errorf("the home's own: %v, %v", started, err)
	}
	s := local(t, "speechless")
	_, _, err := s.Ensure(t.Context())
	foreign(t, "one that proves nothing", err)
}

func TestAddressOf(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:46580": "127.0.0.1:46580", "http://localhost:46580": "127.0.0.1:46580", "http://0.0.0.0:46580": "127.0.0.1:46580",
	} {
		if got := addressOf(endpoint); got.String() != want {
			t.Errorf("%s: %v", endpoint, got)
		}
	}
}

func TestACredentialIsNotShownToAnotherAccount(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	if !Vouch(at) {
		t.Error("nothing is shown to a process of this account")
	}
	heldBy(t, tcpowner.Owner{UID: os.Getuid() + 1, Known: true})
	if Vouch(at) {
		t.Error("shown to another account")
	}
}
