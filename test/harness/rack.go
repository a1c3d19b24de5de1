//go:build linux

package harness

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/machine"
	"github.com/skypilot-go/sky/internal/proc"
)

// A Rented is a machine as its cloud says that it is.
type Rented struct {
	ID, Address string
	Port        int // of its ssh server
	State       fluffyapi.State
	User        string   // who logs in
	Keys        []string // public keys that the cloud lets in
	Script      string   // what its user runs at the first boot; "": nothing
	Env         []string
}

// A Landlord is a fake of a cloud whose machines a rack is.
type Landlord interface {
	Rented() ([]Rented, error)
	// Arrived says that what a machine was doing is done: it runs, is off or gone.
	Arrived(id string, from fluffyapi.State)
	// Halt says that a machine has switched itself off.
	Halt(id string)
}

// A Rack is hardware: machines of FluffyCloud, which are real process trees with an ssh
// server each, that follow what a fake of a cloud says of its own.
type Rack struct {
	t    testing.TB
	tool string
	dir  string
	stop func() // following
}

// NewRack makes one that is empty. When the test ends, all its machines do, after the
// workstation that rents them.
func NewRack(t testing.TB) *Rack {
	t.Helper()
	tool, err := FluffyCloudBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rack-")
	if err != nil {
		t.Fatal(err)
	}
	r := &Rack{t: t, tool: tool, dir: dir, stop: func() {}}
	t.Cleanup(func() {
		r.stop()
		entries, _ := os.ReadDir(r.dir)
		for _, e := range entries {
			if err := r.off(context.Background(), e.Name()); err != nil {
				t.Errorf("switching %s off: %v", e.Name(), err)
			}
		}
		os.RemoveAll(r.dir)
	})
	return r
}

// folder is that of a machine, whatever its id.
func (r *Rack) folder(id string) string {
	return filepath.Join(r.dir, strings.ReplaceAll(id, "/", "_"))
}

// Address gives every machine a loopback address of its own.
func (r *Rack) Address(id string) string {
	h := sha256.Sum256([]byte(r.folder(id)))
	return net.IPv4(127, 240+h[0]%15, h[1], 1+h[2]%254).String()
}

// On lists the machines that run.
func (r *Rack) On() []string {
	var out []string
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		if machine.On(filepath.Join(r.dir, e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out
}

// Follow lets the machines do what the cloud says until the rack is stopped.
func (r *Rack) Follow(cloud Landlord) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			all, err := cloud.Rented()
			if err != nil {
				r.t.Error(err)
			}
			for _, m := range all {
				if err := r.bring(ctx, cloud, m); err != nil && ctx.Err() == nil {
					r.t.Errorf("machine %s: %v", m.ID, err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	r.stop = func() {
		cancel()
		wg.Wait()
	}
}

// bring makes one machine what the cloud says it is.
func (r *Rack) bring(ctx context.Context, cloud Landlord, m Rented) error {
	switch m.State {
	case fluffyapi.Pending:
		if err := r.boot(ctx, m); err != nil {
			return err
		}
	case fluffyapi.Running:
		if !machine.On(r.folder(m.ID)) { // it powered itself off
			cloud.Halt(m.ID)
		}
		return nil
	case fluffyapi.Stopping:
		if err := r.off(ctx, m.ID); err != nil {
			return err
		}
	case fluffyapi.Terminating:
		if err := r.off(ctx, m.ID); err != nil {
			return err
		}
		if err := os.RemoveAll(r.folder(m.ID)); err != nil {
			return err
		}
	default:
		return nil
	}
	cloud.Arrived(m.ID, m.State)
	return nil
}

// programs are those that scripts of clouds run on their machines, besides what these have:
// here they touch nothing but the machine. The ssh server is there already.
var programs = map[string]string{
	"su":   "#!/bin/sh\n[ \"$1\" = - ] && [ \"$3\" = -c ] || exit 1\nexec sh -c \"$4\"\n",
	"sshd": nothing, "ssh-keygen": nothing, "apt-get": nothing, "systemctl": nothing, "usermod": nothing, "docker": nothing,
}

const nothing = "#!/bin/sh\nexit 0\n"

func (r *Rack) boot(ctx context.Context, m Rented) error {
	dir := r.folder(m.ID)
	if machine.On(dir) {
		return nil
	}
	_, known := os.Stat(dir)
	_, err := machine.NewHostKey(dir)
	spec := machine.Spec{ID: m.ID, Listen: net.JoinHostPort(m.Address, strconv.Itoa(m.Port)), User: m.User, Env: m.Env}
	if err = errors.Join(err, machine.Furnish(dir, spec, strings.Join(m.Keys, "\n"))); err != nil {
		return err
	}
	console, err := os.OpenFile(filepath.Join(dir, "console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	program := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(name, args...)
		c.Dir = filepath.Join(dir, "home")
		c.Env = []string{"HOME=" + c.Dir, "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), machine.EnvMachine + "=" + dir}
		c.Stdout, c.Stderr = console, console
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return c
	}
	if m.Script != "" && os.IsNotExist(known) {
		for name, text := range programs {
			if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte(text), 0o700); err != nil {
				return err
			}
		}
		script := strings.ReplaceAll(m.Script, "/tmp/", filepath.Join(dir, "tmp")+"/") // each machine has its own
		if err := program("/bin/sh", "-c", script).Run(); err != nil {
			said, _ := os.ReadFile(console.Name())
			return fmt.Errorf("its script: %w\n%s", err, said)
		}
	}
	c := program(r.tool, "machine", "--dir", dir)
	if err := c.Start(); err != nil {
		return err
	}
	go c.Wait()
	for !machine.On(dir) && ctx.Err() == nil {
		if said, _ := os.ReadFile(console.Name()); bytes.Contains(said, []byte("cannot have its address")) {
			return fmt.Errorf("%s", said)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (r *Rack) off(ctx context.Context, id string) error {
	dir := r.folder(id)
	return proc.End(ctx, func() []int { return proc.Tree(0, false, machine.EnvMachine, dir) }, 0)
}
