//go:build unix

package sshconn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

const fakeSudo = `#!/bin/sh
[ "$1 $2 $3 $5" = "-n -H -u --" ] || { echo "unexpected: $*" >&2; exit 9; }
[ "$4" = ada ] || { echo "sudo: a password is required" >&2; exit 1; }
HOME=%s USER=$4; export HOME USER; unset SSH_CONNECTION; shift 5; exec "$@"
`

func TestCommandsOfAnotherAccount(t *testing.T) {
	file, signer := sshtest.NewKey(t)
	s := sshtest.Start(t, signer.PublicKey())
	bin, home := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sudo"), fmt.Appendf(nil, fakeSudo, home), 0o700); err != nil {
		t.Fatal(err)
	}
	s.Set(func(k *sshtest.Knobs) { k.Env = map[string]string{"PATH": bin + ":" + os.Getenv("PATH")} })
	p := New(Options{Home: t.TempDir()})
	t.Cleanup(p.Close)
	login := Target{Host: "127.0.0.1", Port: s.Port(), User: "pool", Identities: []string{file}}
	ada, bob := login, login
	ada.RunAs, bob.RunAs = "ada", "bob"

	out, err := p.Run(t.Context(), ada, `echo "$USER $PWD it's"; cat`, strings.NewReader("in"))
	if want := "ada " + home + " it's\nin"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	out, err = p.Script(t.Context(), ada, `echo "$USER in $HOME from ${SSH_CONNECTION%% *}"`)
	if want := "ada in " + home + " from 127.0.0.1\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	var exit *ExitError
	if _, err := p.Run(t.Context(), ada, "exit 7", nil); !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("%v", err)
	}
	conn, err := p.Pipe(t.Context(), ada, `read x; echo "$USER has $x"`)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "this\n")
	if b, err := io.ReadAll(conn); string(b) != "ada has this\n" {
		t.Errorf("%q, %v", b, err)
	}
	conn.Close()
	if out, err := p.Script(t.Context(), login, `echo "$USER"`); string(out) != "tester\n" { // who sshtest's shells are
		t.Errorf("%q, %v", out, err)
	}

	var refused *RunAsError
	_, err = p.Script(t.Context(), bob, "touch "+Quote(filepath.Join(home, "done")))
	if !errors.As(err, &refused) || *refused != (RunAsError{Host: "127.0.0.1", Login: "pool", Account: "bob", Said: "sudo: a password is required"}) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(home, "done")); err == nil {
		t.Error("it ran as the login")
	}
	if n := s.Logins.Load(); n != 1 {
		t.Errorf("%d logins", n)
	}
}

func TestWhatAllowsAnAccount(t *testing.T) {
	for _, tt := range []struct{ login, account, want string }{
		{"pool", "ada", `echo 'pool ALL=(ada) NOPASSWD: /bin/sh' | install -m 440 /dev/stdin /etc/sudoers.d/sky-ada`},
		{"pool", "ada.l", `echo 'pool ALL=(ada.l) NOPASSWD: /bin/sh' | install -m 440 /dev/stdin /etc/sudoers.d/sky-ada_l`},
		{`CORP\pool`, "ada", `echo 'CORP\\pool ALL=(ada) NOPASSWD: /bin/sh' | install -m 440 /dev/stdin /etc/sudoers.d/sky-ada`},
	} {
		if got := (&RunAsError{Login: tt.login, Account: tt.account}).Allow(); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
	for _, name := range []string{"", "root", "-u", "#0", "%wheel", "a b", "a\nb", "a=b", "Ada", "ada,bob", "ALL", strings.Repeat("a", 33)} {
		if CheckAccount(name) == nil {
			t.Errorf("%q is taken", name)
		}
		if _, err := FromReach(cloud.Reach{Host: "h", RunAs: name}); err == nil && name != "" {
			t.Errorf("%q is taken from a record", name)
		}
	}
	for _, name := range []string{"ada", "_ada", "ada.lovelace", "a-1", strings.Repeat("a", 32)} {
		if err := CheckAccount(name); err != nil {
			t.Error(err)
		}
	}
}
