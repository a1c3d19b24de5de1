package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/skypilot-go/sky/internal/metrics"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
)

// RunOptions are those of a balancer that runs beside the server.
type RunOptions struct {
	Options
	Endpoint string        // of the server
	Token    func() string // of an account that may have tables; nil: none
	HTTP     *http.Client  // for calls to the server
	Metrics  string        // address for /metrics and /healthz; "": none
	Drain    time.Duration // how long requests go on after ctx has ended; 0: 2 minutes
	// Delay is how long new connections are still taken after ctx has ended, while
	// /healthz fails already, so that whatever chooses among balancers learns of it.
	Delay time.Duration
}

// ballast makes the collector of garbage wait for more of it than a balancer uses, which
// is a few MB: collecting at each doubling of these takes a tenth of a busy balancer's
// processor time. It is never written to, so it is address space and no memory.
const ballast = 32 << 20

// Run serves until ctx ends, and then until its requests have.
func Run(ctx context.Context, o RunOptions) error {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	client := &feed.Client{Endpoint: o.Endpoint, Token: o.Token, HTTP: o.HTTP, Logger: log}
	if o.Connect == nil {
		o.Connect = client.Connect
	}
	b, err := New(o.Options)
	if err != nil {
		return err
	}
	weight := make([]byte, ballast)
	defer runtime.KeepAlive(weight)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		out := metrics.NewWriter(w)
		b.WriteMetrics(out)
		out.Flush()
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case ctx.Err() != nil:
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case b.Table().Services == nil:
			http.Error(w, "no table yet", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	if o.Metrics != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Metrics)
		if err != nil {
			b.Shutdown(context.WithoutCancel(ctx))
			return fmt.Errorf("listening for metrics: %w", err)
		}
		srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
		go srv.Serve(l)
		defer srv.Close()
	}
	fed, stopFeed := context.WithCancel(context.WithoutCancel(ctx)) // reports go on while requests do
	done := make(chan struct{})
	go func() { defer close(done); client.Run(fed, b) }()
	<-ctx.Done()
	time.Sleep(o.Delay)
	drain := or(o.Drain, 2*time.Minute)
	log.Info("load balancer stops; its requests go on", "up to", drain.String())
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err = b.Shutdown(end)
	stopFeed()
	<-done
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests were ended after the time for draining")
		return nil
	}
	return err
}
