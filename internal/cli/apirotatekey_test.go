package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/internal/envelope"
)

func TestRotateKeyPutsANewKeyBeforeTheOld(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".sky", "api_server", envelope.FileName)
	old, err := envelope.CreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := newApp(Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: []string{"HOME=" + home}})
	a.home = home
	if err := a.rotateKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := envelope.ReadFile(path, false)
	if err != nil || len(keys) != 2 || keys[1].ID() != old.ID() {
		t.Fatalf("%v %v", keys, err)
	}
	if strings.Contains(out.String(), keys[0].Text()) || !strings.Contains(out.String(), string(keys[0].ID())) {
		t.Error(out.String())
	}
}

func TestRotateKeyLosesNoKeyOfAnotherRun(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".sky", "api_server", envelope.FileName)
	if _, err := envelope.CreateFile(path); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			var out bytes.Buffer
			a := newApp(Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: []string{"HOME=" + home}})
			a.home = home
			if err := a.rotateKey(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if keys, err := envelope.ReadFile(path, false); err != nil || len(keys) != 9 {
		t.Errorf("%d keys after 8 changes, %v", len(keys), err)
	}
}

// The other servers of a database could not read what one encrypts with a key that
// only it has.
func TestRotateKeyLeavesTheKeyOfSeveralServersAlone(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".sky", "api_server", envelope.FileName)
	old, err := envelope.CreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".sky", "config.yaml"), []byte("db: postgresql://sky:hunter2@db.example/sky\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := newApp(Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: []string{"HOME=" + home}})
	a.home = home
	err = a.rotateKey(t.Context())
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "config.yaml:1:5") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if keys, err := envelope.ReadFile(path, false); err != nil || len(keys) != 1 || keys[0].ID() != old.ID() {
		t.Errorf("%v %v", keys, err)
	}
}
