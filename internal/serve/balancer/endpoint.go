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
)

// An endpoint is where a service listens.
type endpoint struct {
	wanted   endpointKey // what the listener was made for
	listener net.Listener
	server   *http.Server
	cert     *certificate
	err      error // why it does not listen
}

// endpointKey is what a listener cannot change while it is open.
type endpointKey struct {
	host   string
	port   int
	tls    bool
	header int
}

const (
	headerTimeout    = 60 * time.Second // for sending the headers of a request
	clientKeepAlive  = 2 * time.Minute
	concurrentStream = 1000 // requests at once over one connection of HTTP/2
)

// listen opens, changes or keeps the service's listener. Balancer.mu is held.
func (s *service) listen() error {
	c := s.conf.Load()
	key := endpointKey{c.Host, c.Port, c.TLS != nil, or(c.Limits.HeaderBytes, 64<<10)}
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
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		e.err = fmt.Errorf("service %s: %w", s.name, err)
		return e.err
	}
	e.wanted, e.listener, e.err = key, l, nil
	e.server = &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: clientKeepAlive, MaxHeaderBytes: key.header,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: concurrentStream},
	}
	e.server.Protocols.SetHTTP1(true)
	if key.tls {
		e.server.Protocols.SetHTTP2(true)
		e.server.TLSConfig = &tls.Config{GetCertificate: e.cert.get, MinVersion: tls.VersionTLS12}
		go e.server.ServeTLS(l, "", "")
	} else {
		e.server.Protocols.SetUnencryptedHTTP2(true)
		go e.server.Serve(l)
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
