// Package serve is FluffyCloud as a server: the model of package model behind
// HTTP, with instances that are processes (package machine).
//
// What exists is what is in the server's folder:
//
//	state.json    the model, replaced before a change is answered
//	tokens.json   who may ask
//	credentials, admin-credentials   endpoint and token, for users and operators
//	machines/ID/  one machine
//
// A machine does not notice that the server goes away. After a restart a loop
// compares what the model says with what runs, as it does all the time.
package serve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// Options say how the cloud is served.
type Options struct {
	Dir         string // of everything that is kept
	Listen      string // ip:port, of this machine only
	Credentials string // a further copy of the user's credentials; "" for none
	PageSize    int    // of lists; 0: the model's
	Boot        time.Duration
	Logger      *slog.Logger
	Ready       func(endpoint string)
}

// Run serves until the context ends. The machines stay as they are.
func Run(ctx context.Context, o Options) error {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "machines"), 0o700); err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	l, err := listen(ctx, o.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	keys, err := readTokens(filepath.Join(dir, "tokens.json"))
	if err != nil {
		return err
	}
	fleet := newFleet(dir, o.Logger)
	c, err := open(dir, o, fleet)
	if err != nil {
		return err
	}
	fleet.cloud = c
	fleet.sweep(ctx)

	endpoint := "http://" + l.Addr().String()
	if err := keys.writeCredentials(dir, endpoint, o.Credentials); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler:           (&server{cloud: c, keys: keys, log: o.Logger}).routes(),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		fleet.run(ctx)
	}()
	context.AfterFunc(ctx, func() { srv.Close() })
	if o.Ready != nil {
		o.Ready(endpoint)
	}
	o.Logger.Info("serving", "endpoint", endpoint, "dir", dir)
	err = srv.Serve(l)
	cancel()
	<-watched
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// listen takes loopback addresses only: the tokens travel in the clear.
func listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address %q is not IP:PORT", address)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is not an address of this machine alone, such as 127.0.0.1:7070", address)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// open takes the model up where it was left.
func open(dir string, o Options, fleet *fleet) (*model.Cloud, error) {
	cfg := model.Default(seed())
	cfg.Boot, cfg.Halt = model.Delay{Min: o.Boot, Max: o.Boot}, model.Delay{}
	cfg.PageSize = o.PageSize
	cfg.Machines = fleet
	file := filepath.Join(dir, "state.json")
	cfg.Commit = func(snapshot []byte) error {
		if err := wholefile.Write(file, snapshot, 0o600); err != nil {
			return err
		}
		fleet.wake()
		return nil
	}
	snapshot, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return model.New(cfg)
	}
	if err != nil {
		return nil, err
	}
	c, err := model.Restore(cfg, snapshot)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func seed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	var n uint64
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}

// Destroy ends every machine of a cloud that is not served and removes its
// folder.
func Destroy(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "tokens.json")); err != nil {
		return fmt.Errorf("%s is not the folder of a cloud: %w", dir, err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(filepath.Join(dir, "machines"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := end(ctx, filepath.Join(dir, "machines", e.Name()), 0); err != nil {
			return err
		}
	}
	return remove(dir)
}

func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Write(file, append(b, '\n'), 0o600)
}
