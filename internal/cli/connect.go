package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cli/localserver"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// endpoint is the API server to talk to and where that was said.
func (a *app) endpoint() (url, source string, err error) {
	s, err := a.config()
	if err != nil {
		return "", "", err
	}
	if s.endpoint != "" {
		return strings.TrimRight(s.endpoint, "/"), s.endpointFrom, nil
	}
	return sky.DefaultEndpoint(a.env), "", nil
}

// open makes the client without talking to the server.
func (a *app) open() (*sky.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	endpoint, _, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	s, err := a.config()
	if err != nil {
		return nil, err
	}
	a.client, err = sky.New(sky.Options{
		Endpoint: endpoint, Token: s.token, Command: a.typed, Config: s.forRequest, ConfigPath: s.paths,
		Environ: a.environ, Notify: func(m string) { a.t.Warn("%s", m) },
	})
	return a.client, err
}

// connect makes the client and sees to it that the server answers; a local
// server is started when there is none.
func (a *app) connect(ctx context.Context) (*sky.Client, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	if a.health != nil {
		return c, nil
	}
	if !c.Local() {
		if a.health, err = c.Health(ctx); err != nil {
			return nil, a.explainRemote(err, c.Endpoint())
		}
		return c, nil
	}
	var spin *term.Spinner
	local, err := a.local(c)
	if err != nil {
		return nil, err
	}
	local.Starting = func() {
		if a.t.ErrTTY {
			spin = a.t.Spin("[bold cyan]Starting the API server on this machine[/]")
		} else {
			a.t.Note("Starting the API server on this machine…")
		}
	}
	h, started, err := local.Ensure(ctx)
	if spin != nil {
		spin.Stop()
	}
	if err != nil {
		return nil, err
	}
	a.health = h
	if started {
		a.t.Note("%s The API server runs at %s (log: %s)", a.t.ErrStyle(term.Green, "✓"), c.Endpoint(), localserver.LogFile(a.home))
	} else {
		a.warnOtherBuild(h)
	}
	return c, nil
}

func (a *app) local(c *sky.Client) (*localserver.Local, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the sky program: %w", err)
	}
	return &localserver.Local{
		Home: a.home, Client: c, Endpoint: c.Endpoint(), Environ: a.environ,
		Command: []string{exe, "api", "start", "--foreground"},
	}, nil
}

// warnOtherBuild tells when the server that runs is not of this binary.
func (a *app) warnOtherBuild(h *api.Health) {
	switch {
	case h.Version != "" && h.Version != api.ProductVersion:
		a.t.Warn("The API server runs version %s, this is version %s. To use one version: sky api stop && sky api start", h.Version, api.ProductVersion)
	case h.BuildID != "" && h.BuildID != "unknown" && buildid.ID() != "unknown" && h.BuildID != buildid.ID():
		a.t.Warn("The API server runs another build of sky (%s) than this one (%s). To use one: sky api stop && sky api start", h.BuildID, buildid.ID())
	}
}

func (a *app) explainRemote(err error, endpoint string) error {
	if _, ok := errors.AsType[*sky.ConnectError](err); ok {
		_, from, _ := a.endpoint()
		return fmt.Errorf("%w. The endpoint %s is set by %s; check the address and your network, or unset it to use a server on this machine", err, endpoint, from)
	}
	if v, ok := errors.AsType[*sky.VersionError](err); ok {
		return fmt.Errorf("%w. Use a client of the server's version, or ask its administrator for an upgrade", v)
	}
	return err
}
