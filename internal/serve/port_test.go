//go:build unix

package serve_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// taken reports whether somebody listens on a port of this machine.
func taken(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		l.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

// The port of a service is held from the moment that it is chosen, so that nobody else
// gets it, until balancers have it in their table; that of a service that is refused is
// not.
func TestThePortOfAServiceIsHeld(t *testing.T) {
	bubble(t, func(i *installation) {
		second := i.manager("second") // tells balancers nothing yet
		up := func(name string) error {
			_, err := second.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: sent(t, service), ServiceName: name})
			return err
		}
		if err := up("chat"); err != nil {
			t.Fatal(err)
		}
		port := *i.service().Port
		if !taken(port) {
			t.Errorf("port %d is not held", port)
		}
		if err := up("chat"); err == nil || !strings.Contains(err.Error(), "already running") {
			t.Errorf("a second service of that name: %v", err)
		}
		if err := up("other"); err != nil {
			t.Fatal(err)
		}
		if list, err := i.m.Status(i.s.Context(), i.call(), []string{"other"}); err != nil || len(list) != 1 || *list[0].Port <= port {
			t.Errorf("another service gets %+v, %v", list, err)
		}
		ctx, stop := context.WithCancel(i.s.Context())
		ended := make(chan struct{})
		go func() { second.Run(ctx); close(ended) }()
		i.until("the port is the balancers'", func(*api.Service) bool { return !taken(port) })
		stop()
		<-ended // it writes logs of services
	})
}

// Where only some ports are open no others are chosen.
func TestPortsOfServicesAreBounded(t *testing.T) {
	bubble(t, func(i *installation) {
		i.m.LastPort = 30000 // none
		_, err := i.m.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: sent(t, service), ServiceName: "chat"})
		if err == nil || !strings.Contains(err.Error(), "No port from 30001 to 30000 is free") {
			t.Errorf("%v", err)
		}
	})
}
