package balancer

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/downstream"
)

// An endpoint is where a service listens.
type endpoint struct {
	wanted   endpointKey // what the listener was made for
	listener net.Listener
	server   server
	cert     *certificate
	err      error // why it does not listen
}

// A server is net/http's or the one of package downstream.
type server interface {
	Shutdown(ctx context.Context) error
	Close() error
}

// endpointKey is what a listener cannot change while it is open.
type endpointKey struct {
	host   string
	port   int
	tls    bool
	header int
	idle   time.Duration // that a connection may be without requests
}

const (
	headerTimeout    = 60 * time.Second // for sending the headers of a request
	clientKeepAlive  = 2 * time.Minute
	concurrentStream = 1000 // requests at once over one connection of HTTP/2
)

// listen opens, changes or keeps the service's listener. Balancer.mu is held.
func (s *service) listen() error {
	c := s.conf.Load()
	key := endpointKey{or(s.b.opt.Host, c.Host), c.Port, c.TLS != nil, or(c.Limits.HeaderBytes, 64<<10), c.Limits.ClientKeepAlive.Or(clientKeepAlive)}
	e := &s.ep
	if c.TLS != nil {
		if e.cert == nil {
			e.cert = &certificate{log: s.log}
		}
		if err := e.cert.use(*c.TLS); err != nil && e.cert.cert == nil {
			e.err = err
			return err
		}
	}
	if e.listener != nil && e.wanted == key {
		return nil
	}
	if e.listener != nil {
		e.listener.Close()
		go e.server.Shutdown(context.Background()) // its requests go on
		*e = endpoint{cert: e.cert}
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(key.host, strconv.Itoa(key.port)))
	if err != nil {
		e.err = fmt.Errorf("service %s: %w", s.name, err)
		return e.err
	}
	e.wanted, e.listener, e.err = key, l, nil
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: key.idle, MaxHeaderBytes: key.header,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: concurrentStream},
	}
	srv.Protocols.SetHTTP1(true)
	if key.tls {
		srv.Protocols.SetHTTP2(true)
		srv.TLSConfig = &tls.Config{GetCertificate: e.cert.get, MinVersion: tls.VersionTLS12}
		e.server = srv
		go srv.ServeTLS(l, "", "")
	} else {
		srv.Protocols.SetUnencryptedHTTP2(true)
		plain := downstream.New(s, srv, l, key.idle)
		e.server = plain
		go plain.Serve()
	}
	s.log.Info("service listens", "address", l.Addr().String())
	return nil
}

// stop ends the service: no new connections, those in use go on until ctx ends.
func (s *service) stop(ctx context.Context, e endpoint) {
	idle := s.close()
	var g sync.WaitGroup
	if e.server != nil {
		g.Go(func() { e.server.Shutdown(ctx) })
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
	if e.server != nil && ctx.Err() != nil {
		e.server.Close()
	}
	s.mu.Lock()
	var all []*replica
	for _, r := range s.replicas {
		all = append(all, r)
	}
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		c.Close()
	}
	for _, r := range all {
		r.end()
	}
	g.Wait()
}
