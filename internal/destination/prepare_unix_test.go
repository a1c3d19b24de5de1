//go:build unix

package destination

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
)

// A machine has folders that its user may not write unless they are handed over.
type machine struct {
	*Preparer
	root  string
	calls int // of sudo
}

func newMachine(t *testing.T, locked ...string) *machine {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{root: root}
	shut := map[string]bool{}
	for _, name := range append(locked, "home") {
		if err := os.MkdirAll(m.at(name), 0o755); err != nil {
			t.Fatal(err)
		}
		shut[m.at(name)] = name != "home"
	}
	m.Preparer = &Preparer{home: m.at("home"), uid: os.Getuid(), gid: os.Getgid(), writable: func(dir string) bool { return !shut[dir] },
		asRoot: func(ctx context.Context, script string, args ...string) error {
			m.calls++
			delete(shut, args[0])
			out, err := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", script, "sh"}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("%s %q: %v: %s", script, args, err, out)
			}
			return err
		}}
	return m
}

func (m *machine) at(name string) string { return filepath.Join(m.root, name) }

func TestAFolderIsMadeForTheUser(t *testing.T) {
	m := newMachine(t, "")
	for range 2 { // the second time it is there
		at, err := m.Prepare(t.Context(), m.at("data/a model"), true)
		if err != nil || at != m.at("data/a model") {
			t.Fatalf("%q, %v", at, err)
		}
		if info, err := os.Stat(at); err != nil || !info.IsDir() {
			t.Fatal(err)
		}
	}
	if m.calls != 1 {
		t.Errorf("sudo was used %d times", m.calls)
	}
}

func TestTheParentOfAFileIsMadeForTheUser(t *testing.T) {
	m := newMachine(t, "")
	at, err := m.Prepare(t.Context(), m.at("data/x.txt"), false)
	if err != nil || at != m.at("data/x.txt") || m.calls != 1 {
		t.Fatalf("%q, %v", at, err)
	}
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Error(err)
	}
}

func TestAFileInAFolderOfRootsIsALink(t *testing.T) {
	m := newMachine(t, "etc")
	path := m.at("etc/motd.txt")
	for _, text := range []string{"one", "two"} {
		at, err := m.Prepare(t.Context(), path, false)
		if err != nil || at == path {
			t.Fatalf("%q, %v", at, err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if m.calls != 1 {
		t.Errorf("sudo was used %d times", m.calls)
	}
	// The home folder of another cluster on the same machine.
	if err := os.Rename(m.at("home"), m.at("gone")); err != nil {
		t.Fatal(err)
	}
	m.home = m.at("next")
	if _, err := m.Prepare(t.Context(), path, false); err != nil || m.calls != 2 {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

func TestWhatOthersHaveIsLeftAlone(t *testing.T) {
	m := newMachine(t, "etc", "opt")
	for _, name := range []string{"etc/passwd", "opt/tool"} {
		if err := os.WriteFile(m.at(name), []byte("theirs"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, folder := range map[string]bool{"etc/passwd": false, "opt": true} {
		_, err := m.Prepare(t.Context(), m.at(path), folder)
		if why, ok := errors.AsType[*Error](err); !ok || why.Path != m.at(path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := os.Chmod(m.at("opt"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Prepare(t.Context(), m.at("opt/mine"), true); err == nil || !strings.Contains(err.Error(), m.at("opt")+" belongs to another user") {
		t.Errorf("below a folder that everybody may change: %v", err)
	}
	if m.calls != 0 {
		t.Errorf("sudo was used %d times", m.calls)
	}
}

func TestWithoutSudoTheErrorNamesThePathAndTheReason(t *testing.T) {
	m := newMachine(t, "")
	m.asRoot = func(context.Context, string, ...string) error { return errors.New("sudo: a password is required") }
	_, err := m.Prepare(t.Context(), m.at("data"), true)
	if err == nil || !strings.HasPrefix(err.Error(), m.at("data")+" cannot be written: it takes root") || !strings.Contains(err.Error(), "a password is required") || !strings.Contains(err.Error(), "sudo install -d -o") {
		t.Error(err)
	}
}

func TestRootNeedsNoSudo(t *testing.T) {
	m := newMachine(t, "etc")
	m.Preparer.root = true
	if at, err := m.Prepare(t.Context(), m.at("etc/x"), false); err != nil || at != m.at("etc/x") || m.calls != 0 {
		t.Errorf("%q, %v", at, err)
	}
}

// What takes root is the machine's, and so not for a cluster that has a share of it.
func TestAShareOfAMachineGetsNothingOfRoots(t *testing.T) {
	m := newMachine(t, "", "etc")
	m.shared = true
	for path, folder := range map[string]bool{"data": true, "data/x.txt": false, "etc/motd.txt": false} {
		if _, err := m.Prepare(t.Context(), m.at(path), folder); err == nil || !strings.Contains(err.Error(), "other clusters have shares of the machine") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if at, err := m.Prepare(t.Context(), m.at("home/x"), true); err != nil || at != m.at("home/x") || m.calls != 0 {
		t.Errorf("%q, %v, sudo was used %d times", at, err, m.calls)
	}
	t.Setenv(agentapi.DevicesEnv, "")
	if !New("/home/me").shared {
		t.Error("a share without GPUs is not taken for one")
	}
}
