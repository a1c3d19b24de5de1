//go:build unix

package sshpool

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
)

const written = `# the lab's machines
lab:
  user: ada # not root
  password: tulip
  hosts:
    - 10.0.0.1
    # the one with the GPU
    - ip: 10.0.0.2
      password: rose
`

func pools(t *testing.T, text string) File {
	t.Helper()
	f := FileInSkyDir(t.TempDir())
	if text != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(f.Path), 0o700), os.WriteFile(f.Path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f File) text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func refused(t *testing.T, err error, part string) {
	t.Helper()
	if e, ok := errors.AsType[*api.Error](err); !ok || !strings.Contains(e.Message, part) {
		t.Errorf("error %v, want one with %q", err, part)
	}
}

func TestPoolsAreToldWithoutPasswords(t *testing.T) {
	got, err := pools(t, written).Pools()
	if err != nil {
		t.Fatal(err)
	}
	hosts, _ := got["lab"]["hosts"].([]any)
	if got["lab"]["password"] != hidden || len(hosts) != 2 || hosts[0] != "10.0.0.1" || hosts[1].(map[string]any)["password"] != hidden {
		t.Errorf("%v", got)
	}
	if got, err := pools(t, "").Pools(); err != nil || got == nil || len(got) != 0 {
		t.Errorf("without a file: %v, %v", got, err)
	}
}

func TestWhatIsSetLeavesTheRestAsItIs(t *testing.T) {
	f := pools(t, written)
	if err := f.Set(t.Context(), map[string]map[string]any{"new": {"hosts": []any{"10.1.0.1"}, "user": "x"}}); err != nil {
		t.Fatal(err)
	}
	text := f.text(t)
	for _, part := range []string{"# the lab's machines", "# not root", "# the one with the GPU", "tulip", "rose", "10.1.0.1"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	if err := f.Remove(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(f.text(t), "10.1.0.1") || !strings.Contains(f.text(t), "tulip") {
		t.Error(f.text(t))
	}
	refused(t, f.Remove(t.Context(), "new"), `no pool "new"`)
	if err := f.Remove(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
	if got, err := f.Pools(); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// What comes back as it was told changes nothing.
func TestHiddenPasswordsStay(t *testing.T) {
	f := pools(t, written)
	told, err := f.Pools()
	if err != nil {
		t.Fatal(err)
	}
	told["lab"]["user"] = "bob"
	if err := f.Set(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	if text := f.text(t); !strings.Contains(text, "tulip") || !strings.Contains(text, "rose") || !strings.Contains(text, "bob") || strings.Contains(text, hidden) {
		t.Error(text)
	}
	refused(t, f.Set(t.Context(), map[string]map[string]any{"other": {"hosts": []any{"h"}, "password": hidden}}), "a password is hidden")
}

func TestPoolsThatCannotBeUsedChangeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		pool map[string]any
		part string
	}{
		"no hosts":       {map[string]any{"user": "x"}, "has no hosts"},
		"nothing":        {nil, "has no hosts"},
		"unknown key":    {map[string]any{"hosts": []any{"h"}, "usr": "x"}, "usr"},
		"a bad port":     {map[string]any{"hosts": []any{map[string]any{"ip": "h", "port": 99999}}}, "port should be from 0 to 65535, not 99999"},
		"a host twice":   {map[string]any{"hosts": []any{"h", "h"}}, "twice"},
		"no address":     {map[string]any{"hosts": []any{map[string]any{"user": "x"}}}, "no ip"},
		"a bad internal": {map[string]any{"hosts": []any{map[string]any{"ip": "h", "internal_ip": "x"}}}, "no address"},
	} {
		t.Run(name, func(t *testing.T) {
			f := pools(t, written)
			refused(t, f.Set(t.Context(), map[string]map[string]any{"p": c.pool}), c.part)
			if f.text(t) != written {
				t.Errorf("changed to\n%s", f.text(t))
			}
		})
	}
	f := pools(t, "lab: [")
	refused(t, f.Set(t.Context(), map[string]map[string]any{"p": {"hosts": []any{"h"}}}), "is left as it is")
}

func TestKeys(t *testing.T) {
	f := pools(t, "")
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := func(passphrase string) []byte {
		t.Helper()
		block, err := ssh.MarshalPrivateKey(private, "")
		if passphrase != "" {
			block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
		}
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(block)
	}
	path, err := f.AddKey("lab-key", key(""))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, name := range []string{"../x", "", ".hidden", "a/b", strings.Repeat("k", 101)} {
		_, err := f.AddKey(name, key(""))
		refused(t, err, "cannot be a key's name")
	}
	_, err = f.AddKey("x", []byte("hello"))
	refused(t, err, "no private key")
	_, err = f.AddKey("x", key("secret"))
	refused(t, err, "passphrase")
	if names, err := f.KeyNames(); err != nil || len(names) != 1 || names[0] != "lab-key" {
		t.Errorf("%v, %v", names, err)
	}
}

func TestInspection(t *testing.T) {
	f := setup(t, 3)
	claim(t, f.hosts[1], cloud.ClusterID{Installation: "other", Name: "theirs", Hash: "h"})
	f.hosts[2].Close()
	got, err := f.p.Inspect(t.Context(), "mine")
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	if got[0].Err != nil || len(got[0].Clusters) != 0 || !strings.Contains(got[0].Size, "CPU--") {
		t.Errorf("a free one: %+v", got[0])
	}
	if got[1].Err != nil || len(got[1].Clusters) != 1 || got[1].Clusters[0].Name != "theirs" || got[1].Free != "nothing free" {
		t.Errorf("one that is taken: %+v", got[1])
	}
	if got[2].Err == nil || got[2].Size != "" {
		t.Errorf("one that is off: %+v", got[2])
	}
	if ready, why, free, err := f.p.Ready(t.Context(), "mine"); ready || !strings.Contains(why, "1 of 3 machines") || !strings.HasPrefix(free, "1 of 2 machines, ") || err != nil {
		t.Errorf("%v %q %q %v", ready, why, free, err)
	}
	_, err = f.p.Inspect(t.Context(), "nope")
	refused(t, err, `no pool "nope"`)
}
