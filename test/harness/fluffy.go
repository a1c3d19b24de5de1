//go:build linux

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/serve"
	"github.com/skypilot-go/sky/internal/porttest"
)

// A Cloud is a FluffyCloud of a test's own: a process whose machines are real
// process trees with an sshd each.
type Cloud struct {
	T           testing.TB
	Dir         string
	Credentials string // the file's text
}

// NewCloud serves a FluffyCloud whose machines take boot to start, until the test
// ends.
func NewCloud(t testing.TB, boot time.Duration) *Cloud {
	t.Helper()
	tool, err := FluffyCloudBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "fluffycloud-")
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "fluffyop-")
	if err != nil {
		t.Fatal(err)
	}
	f := &Cloud{T: t, Dir: filepath.Join(dir, "cloud")}
	credentials := filepath.Join(dir, "credentials")
	c := exec.Command(tool, "serve", "--dir", f.Dir, "--listen", fmt.Sprintf("127.0.0.1:%d", porttest.Free(t)), "--credentials", credentials, "--boot", boot.String())
	c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		log.Close()
		if out, err := exec.Command(tool, "destroy", "--dir", f.Dir).CombinedOutput(); err != nil {
			t.Errorf("destroying the cloud: %v\n%s", err, out)
		}
		os.RemoveAll(dir)
		os.RemoveAll(home)
	})
	Eventually(t, "FluffyCloud is served", time.Minute, func() bool {
		b, err := os.ReadFile(credentials)
		f.Credentials = string(b)
		return err == nil && len(b) > 0 && f.Try("GET", "inventory", nil) == nil
	})
	return f
}

// Environment is the credentials as environment variables.
func (f *Cloud) Environment() []string {
	var env []string
	for line := range strings.Lines(f.Credentials) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env = append(env, "FLUFFYCLOUD_"+strings.ToUpper(strings.TrimSpace(key))+"="+strings.TrimSpace(value))
		}
	}
	return env
}

// Admin does an operator's call.
func (f *Cloud) Admin(method, path string, body any) ([]byte, error) {
	text := []byte("{}")
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	return serve.Admin(context.Background(), f.Dir, method, path, bytes.NewReader(text))
}

// Try does an operator's call whose answer does not matter.
func (f *Cloud) Try(method, path string, body any) error {
	_, err := f.Admin(method, path, body)
	return err
}

// Operate does an operator's call that must succeed.
func (f *Cloud) Operate(method, path string, body any) {
	f.T.Helper()
	if err := f.Try(method, path, body); err != nil {
		f.T.Fatalf("%s %s: %v", method, path, err)
	}
}

// Inventory is everything that the cloud holds.
func (f *Cloud) Inventory() serve.Inventory {
	f.T.Helper()
	var all serve.Inventory
	b, err := f.Admin("GET", "inventory", nil)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		f.T.Error(err)
	}
	return all
}

// Machines are those that exist and have not ended.
func (f *Cloud) Machines() []model.Machine {
	f.T.Helper()
	var alive []model.Machine
	for _, m := range f.Inventory().Instances {
		if m.State != fluffyapi.Terminated && m.State != fluffyapi.Terminating {
			alive = append(alive, m)
		}
	}
	return alive
}

// NewFluffy is a workstation with an account on a FluffyCloud of its own.
func NewFluffy(t testing.TB, boot time.Duration) (*Workstation, *Cloud) {
	t.Helper()
	f := NewCloud(t, boot)
	w := New(t)
	w.Write(".fluffycloud/credentials", f.Credentials)
	return w, f
}
