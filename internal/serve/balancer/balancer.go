// Package balancer is the load balancer of services: it listens where they are to
// be found and passes requests on to their replicas.
//
// A [Balancer] does what the last [balancerapi.Table] says that was applied, and
// keeps it on disk: it needs nobody to go on. It knows nothing of where tables come
// from; inside a server the controller of services calls Apply, and beside one
// package feed pulls them.
//
// Package policy chooses among replicas, package prefix remembers where prompts
// went, and package upstream speaks HTTP/1.1 with replicas. What they are together
// is here: one [service] for each endpoint, and an exchange for each request.
package balancer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// Options of a balancer. The zero value works.
type Options struct {
	StateDir  string       // keeps the last table and the balancer's id; "": nothing is kept
	ID        string       // "": the one in StateDir, else a new one
	Host      string       // address to listen on in place of the table's
	AccessLog io.Writer    // gets a line of JSON for each request; nil: none
	Logger    *slog.Logger // nil: nothing is logged
	Dial      dialFunc     // connects to replicas; nil: net.Dialer
	// Networks are those that the balancer is in: their replicas are dialled (see
	// [balancerapi.Replica]). Connect reaches the others, through the server.
	Networks []string
	Connect  func(ctx context.Context, service string, replica int) (net.Conn, error)
}

// A Balancer serves a table. Its methods may be called concurrently.
type Balancer struct {
	opt       Options
	id, epoch string
	access    *accessLog
	waitingC  chan struct{}
	stopped   chan struct{}
	loops     sync.WaitGroup

	mu       sync.Mutex
	table    balancerapi.Table
	services map[string]*service
	closed   bool
}

// tableFile and idFile are in the state folder.
const (
	tableFile = "table.json"
	idFile    = "id"
)

// New is a balancer that serves its last table, if it has one.
func New(o Options) (*Balancer, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	b := &Balancer{opt: o, epoch: random(), services: map[string]*service{}, access: newAccessLog(o.AccessLog),
		waitingC: make(chan struct{}, 1), stopped: make(chan struct{})}
	var err error
	if b.id, err = b.identity(); err != nil {
		return nil, err
	}
	if o.StateDir != "" {
		t, err := readTable(filepath.Join(o.StateDir, tableFile))
		if err != nil {
			o.Logger.Error("last table cannot be used", "err", err)
		} else if len(t.Services) > 0 {
			if err := b.Apply(t); err != nil {
				o.Logger.Error("last table served in part", "err", err)
			}
		}
	}
	b.loops.Go(b.maintain)
	return b, nil
}

func random() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (b *Balancer) identity() (string, error) {
	if b.opt.ID != "" {
		return b.opt.ID, nil
	}
	id := random()
	if b.opt.StateDir == "" {
		return id, nil
	}
	name := filepath.Join(b.opt.StateDir, idFile)
	if have, err := os.ReadFile(name); err == nil && len(strings.TrimSpace(string(have))) > 0 {
		return strings.TrimSpace(string(have)), nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the id of this load balancer: %w", err)
	}
	if err := wholefile.WriteSynced(name, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the id of this load balancer: %w", err)
	}
	return id, nil
}

func readTable(name string) (balancerapi.Table, error) {
	var t balancerapi.Table
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err == nil {
		err = t.Check()
	}
	if err != nil {
		return balancerapi.Table{}, fmt.Errorf("reading %s: %w", name, err)
	}
	return t, nil
}

// ErrStopped is what Apply returns after Shutdown.
var ErrStopped = errors.New("the load balancer has stopped")

// Apply makes the balancer serve a table, from now on and after a restart. A table
// that is not newer than the last one changes nothing, nor does one that cannot be
// served, whose error says why. An error about a listener or the disk means that
// the rest is served; listeners are tried again.
func (b *Balancer) Apply(t balancerapi.Table) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("the table cannot be served: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrStopped
	}
	if b.table.Services != nil && !t.Newer(b.table) {
		return nil
	}
	now := time.Now()
	listed := map[string]bool{}
	var errs []error
	for _, row := range t.Services {
		listed[row.Name] = true
		s := b.services[row.Name]
		if s == nil {
			s = newService(b, row.Name)
			b.services[row.Name] = s
		}
		s.apply(row, now)
	}
	for name, s := range b.services { // before others listen on its port
		if !listed[name] {
			delete(b.services, name)
			e, drain := s.ep, s.conf.Load().drain
			if e.listener != nil {
				e.listener.Close()
			}
			b.loops.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), drain)
				defer cancel()
				go func() {
					select {
					case <-b.stopped:
						cancel()
					case <-ctx.Done():
					}
				}()
				s.stop(ctx, e)
			})
		}
	}
	b.table = t
	if b.table.Services == nil {
		b.table.Services = []balancerapi.Service{}
	}
	for _, row := range t.Services {
		errs = append(errs, b.services[row.Name].listen())
	}
	if b.opt.StateDir != "" {
		text, err := json.MarshalIndent(b.table, "", "\t")
		if err == nil {
			err = wholefile.Write(filepath.Join(b.opt.StateDir, tableFile), text, 0o600)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keeping the table for the next start: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Table is the one that is served.
func (b *Balancer) Table() balancerapi.Table {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table
}

// Addr is the address that a service listens on; nil: it does not.
func (b *Balancer) Addr(name string) net.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.services[name]; s != nil && s.ep.listener != nil {
		return s.ep.listener.Addr()
	}
	return nil
}

// Waiting receives when requests begin to wait for a replica: a controller that is
// told of it at once (by a [balancerapi.Report]) starts one sooner.
func (b *Balancer) Waiting() <-chan struct{} { return b.waitingC }

func (b *Balancer) waitingChanged() {
	select {
	case b.waitingC <- struct{}{}:
	default:
	}
}

// maintain does what nobody asks for: listeners that failed, connections that are
// unused, requests that wait although the reason has passed, and the metrics of
// replicas.
func (b *Balancer) maintain() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	scrapes := newScraper()
	defer scrapes.wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-b.stopped:
			cancel()
			return
		case <-tick.C:
		}
		now := time.Now()
		b.mu.Lock()
		all := slices.Collect(maps.Values(b.services))
		for _, s := range all {
			if s.ep.listener == nil {
				s.listen()
			}
		}
		b.mu.Unlock()
		for _, s := range all {
			s.mu.Lock()
			s.dispatch(now)
			replicas := slices.Collect(maps.Values(s.replicas))
			s.mu.Unlock()
			for _, r := range replicas {
				r.pool.Sweep(now)
			}
			scrapes.start(ctx, s, replicas, now)
		}
		b.access.flush()
	}
}

// Shutdown stops accepting connections and ends once all requests have, or when ctx
// does, which ends them.
func (b *Balancer) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	all := slices.Collect(maps.Values(b.services))
	for _, s := range all {
		if s.ep.listener != nil {
			s.ep.listener.Close()
		}
	}
	b.mu.Unlock()
	var g sync.WaitGroup
	for _, s := range all {
		g.Go(func() { s.stop(ctx, s.ep) })
	}
	g.Wait()
	if first {
		close(b.stopped)
	}
	b.loops.Wait()
	b.access.flush()
	return ctx.Err()
}
