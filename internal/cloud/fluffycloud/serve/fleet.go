package serve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/machine"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/proc"
)

const (
	lookEvery = 200 * time.Millisecond // at machines that may have ended by themselves
	killGrace = time.Second            // between TERM and KILL when a machine is stopped
	bootLimit = 20 * time.Second       // until the ssh server is there
	sshPort   = 2222
)

// fleet makes the processes follow the model.
type fleet struct {
	dir   string // <root>/machines
	disks string // <root>/images: copies of disks
	log   *slog.Logger
	cloud *model.Cloud
	kick  chan struct{}

	mu   sync.Mutex
	busy map[string]bool // machines that are being switched on or off
}

func newFleet(dir string, log *slog.Logger) *fleet {
	return &fleet{dir: filepath.Join(dir, "machines"), disks: filepath.Join(dir, "images"), log: log, kick: make(chan struct{}, 1), busy: map[string]bool{}}
}

func (f *fleet) folder(id string) string { return filepath.Join(f.dir, id) }

// HostKey makes the key of a new machine.
func (f *fleet) HostKey(id string) (string, error) { return machine.NewHostKey(f.folder(id)) }

// Address finds a loopback address that nobody uses, different for every cloud
// of this computer.
func (f *fleet) Address(id string, _ uint64) (ip string, port int) {
	for try := range 1000 {
		h := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", f.dir, id, try))
		n := binary.BigEndian.Uint32(h[:])
		// 127.240.0.1 to 127.254.255.254: beside the nodes of the local provider.
		ip = net.IPv4(127, byte(240+n>>24%15), byte(n>>16), byte(1+n%254)).String()
		if l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(sshPort))); err == nil {
			l.Close()
			return ip, sshPort
		}
	}
	// A system with one loopback address tells machines apart by the port.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1", sshPort // the machine will say what is wrong
	}
	defer l.Close()
	return "127.0.0.1", l.Addr().(*net.TCPAddr).Port
}

func (f *fleet) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// run compares and acts until the context ends.
func (f *fleet) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f.look(ctx, &wg)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.kick:
		}
	}
}

// look begins what machines need; a machine has one thing done at a time.
func (f *fleet) look(ctx context.Context, wg *sync.WaitGroup) {
	for _, m := range f.cloud.Machines() {
		act := f.decide(m, time.Now())
		if act == nil {
			continue
		}
		f.mu.Lock()
		free := !f.busy[m.ID]
		f.busy[m.ID] = true
		f.mu.Unlock()
		if !free {
			continue
		}
		wg.Go(func() {
			err := act(ctx, m)
			f.mu.Lock()
			delete(f.busy, m.ID)
			f.mu.Unlock()
			switch {
			case err == nil:
				f.wake() // what was asked for meanwhile comes next
			case ctx.Err() == nil: // the next tick tries again
				f.log.Error("machine does not follow", "machine", m.ID, "state", m.State, "err", err)
			}
		})
	}
}

// decide says what a machine needs; nil for nothing.
func (f *fleet) decide(m model.Machine, now time.Time) func(context.Context, model.Machine) error {
	switch m.State {
	case fluffyapi.Pending:
		if !now.Before(m.BootAt) {
			return f.switchOn
		}
	case fluffyapi.Running:
		if !machine.On(f.folder(m.ID)) {
			return func(_ context.Context, m model.Machine) error { return f.cloud.Halt(m.ID) }
		}
	case fluffyapi.Stopping:
		return f.switchOff
	case fluffyapi.Terminating:
		return f.scrap
	}
	return nil
}

func (f *fleet) switchOn(ctx context.Context, m model.Machine) error {
	dir := f.folder(m.ID)
	spec := machine.Spec{ID: m.ID, Listen: net.JoinHostPort(m.PrivateIP, strconv.Itoa(m.SSHPort)), User: m.SSHUser}
	spec.Accelerators = f.cloud.Accelerators(m.Type)
	if !machine.On(dir) {
		// What an earlier life left must not live on in this one.
		if err := end(ctx, dir, 0); err != nil {
			return err
		}
		if err := machine.Furnish(dir, spec, m.SSHKey); err != nil {
			return err
		}
		if err := spawn(dir); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(bootLimit)
	for !machine.On(dir) {
		if time.Now().After(deadline) {
			console, _ := os.ReadFile(filepath.Join(dir, "console.log"))
			return fmt.Errorf("no ssh server after %v: %s", bootLimit, console)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return f.cloud.Booted(m.ID)
}

func (f *fleet) switchOff(ctx context.Context, m model.Machine) error {
	if err := end(ctx, f.folder(m.ID), killGrace); err != nil {
		return err
	}
	return f.cloud.Halted(m.ID)
}

func (f *fleet) scrap(ctx context.Context, m model.Machine) error {
	if err := end(ctx, f.folder(m.ID), 0); err != nil {
		return err
	}
	if err := remove(f.folder(m.ID)); err != nil {
		return err
	}
	return f.cloud.Halted(m.ID)
}

// remove removes a machine's disk. Buckets that were mounted there are unmounted first: what
// is in them stays.
func remove(dir string) error {
	if err := mountpoints.DetachBelow(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// sweep removes machines that no instance stands for: a crash came between
// their making and the note of it.
func (f *fleet) sweep(ctx context.Context) {
	known := map[string]bool{}
	for _, m := range f.cloud.Machines() {
		known[m.ID] = m.State != fluffyapi.Terminated
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.log.Error("machines cannot be listed", "err", err)
		return
	}
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		err := end(ctx, f.folder(e.Name()), 0)
		if err == nil {
			err = remove(f.folder(e.Name()))
		}
		f.log.Info("stray machine removed", "machine", e.Name(), "err", err)
	}
}

// end ends all processes of a machine.
func end(ctx context.Context, dir string, grace time.Duration) error {
	return proc.End(ctx, func() []int { return proc.Tree(0, false, machine.EnvMachine, dir) }, grace)
}
